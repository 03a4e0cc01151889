"""Building the index of evaluation sets (index.py), in a process between passes.

Items are read a few megabytes at a time. The hashes of their n-grams go to one file for each of N_PARTS ranges of
hashes, which are sorted one after the other. Scratch: 16 bytes for each n-gram; memory: the filter, and one part.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis import files
from tamis.dedup import state
from tamis.dedup.contamination.index import (
    AS_A_WHOLE,
    CHECKED,
    ITEM,
    MOST_TEXT_BYTES,
    ROWS_PER_PART,
    UNCHECKED,
    pack_postings,
)
from tamis.dedup.contamination.sets import EvaluationSet, digest_of, items_of, stat_of
from tamis.dedup.contamination.tasks import BuildTask, IndexFacts, SetFacts
from tamis.dedup.planning import SOLVER_BASE_BYTES
from tamis.dedup.task_process import perform_task, report_share
from tamis.errors import BudgetError, RunConflict, UsageError
from tamis.formats.scratch.spilled import Spilled
from tamis.formats.scratch.stored_arrays import NpyWriter, open_npy
from tamis.kernels.overlap.folding import VERSION, WEIGHT_OF_WORD, Folding, folding, stored
from tamis.kernels.overlap.ngrams import FULL, Scanner, add_all, new_filter
from tamis.sizes import format_size

Array = NDArray[Any]
N_PARTS = 256
_BATCH_BYTES = 4_000_000  # of items, scanned together
_WAITING = 1 << 20  # n-grams before they are written to their parts
_PART_SHIFT = np.uint64(56)
_ENTRY = np.dtype([("hash", "<u8"), ("posting", "<i8")])
_BATCH = 1 << 16
_WORKERS_BYTES = 150_000_000  # of the passes that use the filter, beyond it


def build(folder: str, task: BuildTask) -> None:
    """Write the index of these sets into a folder."""
    before = stat_of(task.sets)
    tables = folding()
    shutil.rmtree(os.path.join(folder, "parts"), ignore_errors=True)
    spilled = Spilled(os.path.join(folder, "parts"))
    items = _ItemFiles(folder, tables, task, spilled)
    say = report_share("reading evaluation sets")
    facts = []
    for i, one in enumerate(task.sets):
        facts.append(items.add_set(i, one))
        say((i + 1) / len(task.sets))
    items.close()
    n_entries, n_ngrams, bits = _write_table(folder, items.parts(), items.n_entries)
    _write_filter(folder, n_ngrams, task)
    spilled.remove()
    with files.replacing(os.path.join(folder, "folding.npz")) as file:
        np.savez(file, **stored(tables))
    if stat_of(task.sets) != before:
        raise RunConflict("the evaluation sets changed while they were read; run the same command again")
    known = json.dumps([VERSION, task.words, task.short_words, [asdict(f) for f in facts]], sort_keys=True)
    fingerprint = hashlib.sha256(known.encode()).hexdigest()
    about = IndexFacts(task.words, task.short_words, n_entries, n_ngrams, bits, fingerprint, before, facts)
    files.write_json(os.path.join(folder, "index.json"), state.to_dict(about))


class _ItemFiles:
    """Writes the items, and sends their n-grams to the parts."""

    def __init__(self, folder: str, tables: Folding, task: BuildTask, spilled: Spilled) -> None:
        self._scanner = Scanner(tables, task.words, task.short_words)
        self._full, self._short = task.words * WEIGHT_OF_WORD, task.short_words * WEIGHT_OF_WORD
        self._spilled = spilled
        self._texts = open(os.path.join(folder, "texts.bin"), "wb")  # noqa: SIM115 (closed with the others)
        self._items = NpyWriter(os.path.join(folder, "items.npy"), "|u1")
        self._starts = NpyWriter(os.path.join(folder, "starts.npy"), "<i8")
        self._unchecked = open(os.path.join(folder, "unchecked.jsonl"), "w", encoding="utf-8")  # noqa: SIM115
        self._waiting: list[Array] = []
        self._n_waiting = self._size = self.n_entries = 0

    def add_set(self, number: int, one: EvaluationSet) -> SetFacts:
        facts = SetFacts(one.name, one.path, one.fields)
        for k, path in enumerate(one.files()):
            n_rows = 0
            for rows, texts in _batches(one, path):
                counts = self._add(number, k, rows, texts, one.name, path)
                n_rows += len(rows)
                facts = replace(
                    facts,
                    n_items=facts.n_items + len(rows),
                    n_checked=facts.n_checked + int(counts[CHECKED]),
                    n_short=facts.n_short + int(counts[AS_A_WHOLE]),
                    n_unchecked=facts.n_unchecked + int(counts[UNCHECKED]),
                )
            about = {"path": path, "n_bytes": os.path.getsize(path), "sha256": digest_of(path), "n_rows": n_rows}
            facts.files.append(about)
        return facts

    def _add(self, number: int, file: int, rows: list[int], texts: list[bytes], name: str, path: str) -> Array:
        size = np.array([len(text) for text in texts], np.int64)
        data = np.frombuffer(b"".join(texts) + b" ", np.uint8)
        ends = np.cumsum(size)
        totals = np.zeros((len(texts), 2), np.int64)
        parts = list(self._scanner.scan(data, ends - size, ends, totals))
        kind = np.where(
            totals[:, 1] >= self._full, CHECKED, np.where(totals[:, 1] >= self._short, AS_A_WHOLE, UNCHECKED)
        )
        if not self._short:
            kind = np.where(kind == AS_A_WHOLE, UNCHECKED, kind)
        n_ngrams = np.zeros(len(texts), np.int64)
        for windows in parts:
            row, full = windows.field("row"), windows.field("kind") == FULL
            # Of a short item the first words are enough: the rest is compared with the text.
            mine = np.where(full, kind[row] == CHECKED, (kind[row] == AS_A_WHOLE) & (windows.field("token") == 0))
            indices = np.flatnonzero(mine)
            entries = np.empty(len(indices), _ENTRY)
            entries["hash"] = windows.hashes[indices]
            entries["posting"] = pack_postings(
                self._size + windows.field("start")[indices], windows.field("token")[indices], ~full[indices]
            )
            n_ngrams += np.bincount(row[indices], minlength=len(texts))
            self._wait(entries)
        items = np.zeros(len(texts), ITEM)
        items["set"], items["file"], items["row"], items["kind"] = number, file, rows, kind
        items["n_ngrams"], items["n_tokens"] = n_ngrams, totals[:, 0]
        self._items.append(items.view(np.uint8))
        self._starts.append(self._size + ends - size)
        self._texts.write(data[:-1].data)
        self._size += int(size.sum())
        if self._size > MOST_TEXT_BYTES:
            raise UsageError(f"evaluation sets of more than {format_size(MOST_TEXT_BYTES)} of text")
        for k in np.flatnonzero(kind == UNCHECKED).tolist():
            about = {"set": name, "path": path, "row": rows[k], "text": texts[k].decode("utf-8", "ignore")[:300]}
            self._unchecked.write(json.dumps(about, ensure_ascii=False) + "\n")
        return np.bincount(kind, minlength=3)

    def _wait(self, entries: Array) -> None:
        self._waiting.append(entries)
        self._n_waiting += len(entries)
        self.n_entries += len(entries)
        if self._n_waiting > _WAITING:
            self._flush()

    def _flush(self) -> None:
        for p, entries in enumerate(self._by_part()):
            if len(entries):
                self._spilled.add(p, entries)

    def _by_part(self) -> list[Array]:
        """Return the waiting n-grams of each part; none wait any more."""
        entries = np.concatenate([np.empty(0, _ENTRY), *self._waiting])
        self._waiting, self._n_waiting = [], 0
        part = (entries["hash"] >> _PART_SHIFT).astype(np.uint8)
        ends = np.cumsum(np.bincount(part, minlength=N_PARTS))
        return np.split(entries[np.argsort(part, kind="stable")], ends[:-1])

    def parts(self) -> Iterator[Array]:
        """Yield the n-grams of each part: those that were written, and those that still wait."""
        for p, entries in enumerate(self._by_part()):
            yield np.concatenate([self._spilled.read(p, _ENTRY), entries])

    def close(self) -> None:
        self._starts.append(np.array([self._size], np.int64))
        for file in (self._items, self._starts, self._texts, self._unchecked):
            file.close()


def _batches(one: EvaluationSet, path: str) -> Iterator[tuple[list[int], list[bytes]]]:
    rows: list[int] = []
    texts: list[bytes] = []
    size = 0
    for item in items_of(one, path):
        rows.append(item.row)
        texts.append(item.text.encode("utf-8", "replace"))
        size += len(texts[-1])
        if size > _BATCH_BYTES:
            yield rows, texts
            rows, texts, size = [], [], 0
    if rows:
        yield rows, texts


def _write_table(folder: str, parts: Iterator[Array], n_entries: int) -> tuple[int, int, int]:
    """Sort the parts one after the other; return the entries, the different n-grams and the bits of the directory."""
    if n_entries >= 1 << 32:
        raise UsageError(f"evaluation sets of {n_entries:,} n-grams; at most {1 << 32:,} can be indexed")
    bits = max(8, (n_entries // ROWS_PER_PART).bit_length())
    shift = np.uint64(64 - bits)
    firsts, total, n_ngrams = np.zeros((1 << bits) + 1, np.int64), 0, 0
    say = report_share("sorting n-grams of evaluation sets")
    with (
        NpyWriter(os.path.join(folder, "hashes.npy"), "<u8") as hashes,
        NpyWriter(os.path.join(folder, "postings.npy"), "<i8") as postings,
    ):
        for p, entries in enumerate(parts):
            order = np.lexsort((entries["posting"], entries["hash"]))
            mine, place = np.ascontiguousarray(entries["hash"][order]), entries["posting"][order]
            hashes.append(mine)
            postings.append(place)
            low, high = p << (bits - 8), (p + 1) << (bits - 8)
            firsts[low:high] = total + np.searchsorted(mine >> shift, np.arange(low, high, dtype=np.uint64))
            total += len(mine)
            n_ngrams += int(np.count_nonzero(np.diff(mine))) + bool(len(mine))
            if p % 16 == 15:
                say((p + 1) / N_PARTS)
    firsts[-1] = total
    with NpyWriter(os.path.join(folder, "directory.npy"), "<i8") as directory:
        directory.append(firsts)
    return total, n_ngrams, bits


def _write_filter(folder: str, n_ngrams: int, task: BuildTask) -> None:
    n_bytes = n_ngrams * 2
    least_bytes = SOLVER_BASE_BYTES + n_bytes + _WORKERS_BYTES
    if n_bytes > 4_000_000 and task.budget_bytes < least_bytes:
        named = -(-least_bytes // 5_000_000) * 5_000_000
        raise BudgetError(
            f"the evaluation sets have {n_ngrams:,} n-grams, of which {format_size(n_bytes)} are kept in memory; a "
            f"budget of {format_size(task.budget_bytes)} is too small for that, the smallest that works is "
            f"{named // 10**6}MB",
            named,
        )
    known = new_filter(n_ngrams)
    hashes = open_npy(os.path.join(folder, "hashes.npy"))
    for first in range(0, len(hashes), _BATCH):
        add_all(hashes.read(first, first + _BATCH), known)
    with NpyWriter(os.path.join(folder, "filter.npy"), "<u8") as out:
        out.append(known)


def main(arguments: Sequence[str]) -> int:
    return perform_task(arguments, BuildTask, build, "the index of evaluation sets")
