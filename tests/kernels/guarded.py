"""Run kernels on arrays that end where readable memory ends: a read or write beyond the end kills this process.

The inputs end there, and so does every array that the functions around the kernels make (outputs, tables, scratch).
A script for test_intrinsics.py, not a test: a segmentation fault must not take the test run down.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tamis.kernels.buffers import StringBuffers
from tamis.kernels.records.hash128 import hash_arrow_strings, hash_spans
from tamis.kernels.records.join import join_rows
from tamis.kernels.records.json_scan import discover_keys, rescan, scan_records
from tamis.kernels.records.json_text import copy_spans, escape, unescape
from tamis.kernels.records.record_lines import record_lines
from tamis.kernels.records.splice import assemble_plain
from tamis.kernels.sketch.band_keys import band_keys
from tamis.kernels.sketch.components import link, new_parents, roots
from tamis.kernels.sketch.similarity import lead, similarities
from tamis.kernels.sketch.sorting import sort_pairs, star_edges
from tamis.kernels.substrings import classes, selections
from tamis.kernels.text.long_repetition import long_fractions
from tamis.kernels.text.split_lines import line_table
from tamis.kernels.text.text_stats import STATISTICS, statistics
from tamis.kernels.text.word_stats import FractionRequest
from tamis.kernels.tokens import _pretokens, added_tokens, byte_bpe, word_ids
from tamis.kernels.tokens.word_table import WordTable
from tamis.stages.text.fasttext.model import FastTextModel
from tests.reference import json_fuzz
from tests.stages.text.fasttext.fasttext_twin import HS, OVA, random_twin

ALPHABETS = (
    b"ab ",
    "aé漢😀\u3000 .\n".encode(),
    bytes(range(256)),
    b"http://a.b/c lorem ipsum {\n\n} terms of use... ",
)
SIZES = (1, 7, 15, 63, 64, 65, 127, 129, 200, 1500)
_libc = ctypes.CDLL(None, use_errno=True)


def guarded(shape: Any, dtype: Any = np.float64) -> Any:
    """Like np.zeros; behind the last item is a page that cannot be read."""
    kind = np.dtype(dtype)
    n_bytes = int(np.prod(shape)) * kind.itemsize
    before = -n_bytes % mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, before + n_bytes + mmap.PAGESIZE), np.uint8)
    if _libc.mprotect(ctypes.c_void_p(whole.ctypes.data + before + n_bytes), mmap.PAGESIZE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    return whole[before : before + n_bytes].view(kind).reshape(shape)


def guarded_bytes(data: bytes) -> Any:
    made = guarded(len(data), np.uint8)
    made[:] = np.frombuffer(data, np.uint8)
    return made


def records(seed: int) -> None:
    data = json_fuzz.mutated_lines(seed, random.Random(seed).randint(1, 4))
    buf = guarded_bytes(data[: random.Random(-seed).randint(1, len(data))] if data else b"{")
    found = scan_records(buf, ["text", "id"], 1 << 20)
    rescan(buf, found, ["a", "meta"])
    discover_keys(buf, found)
    record_lines(buf)
    offsets, text, valid = unescape(buf, found.types[:, 0], found.val_start[:, 0], found.val_len[:, 0])
    escape(np.array([0, buf.size // 2, buf.size]), buf, None, 0, 2)
    escape(offsets, text, valid, 0, valid.size)
    spans = found.start, found.end - found.start
    hash_spans(buf, *spans)
    hash_arrow_strings(offsets, text, valid)
    copy_spans(buf, *spans, guarded(buf.size, np.uint8), found.start)
    assemble_plain(buf, found.start, found.end, np.arange(found.n_records))
    join_rows(buf, buf[:0], spans[0][:, None], spans[1][:, None], [b'"k":'])


def documents(seed: int) -> StringBuffers:
    """Two documents, cut anywhere, so not always UTF-8."""
    rng = np.random.default_rng(seed)
    alphabet = np.frombuffer(ALPHABETS[seed % len(ALPHABETS)], np.uint8)
    data = guarded(int(rng.choice(SIZES)), np.uint8)
    data[:] = rng.choice(alphabet, data.size)
    middle = int(rng.integers(0, data.size + 1))
    return StringBuffers(np.array([0, middle, data.size]), data, None)


def text(seed: int, models: list[FastTextModel]) -> None:
    parts = documents(seed)
    statistics(parts, sorted(STATISTICS))
    line_table(parts)
    line_table(parts, only_terminal=True)
    counts = statistics(parts, ["words", "chars"])
    for row, n_words in enumerate(counts["words"].tolist()):
        if n_words:
            wanted = FractionRequest(last_n=4, duplicates=28, tops=28, joins=28)
            span = int(parts.offsets[row]), int(parts.offsets[row + 1])
            long_fractions(parts.data, *span, n_words, int(counts["chars"][row]), wanted, 64)
    for model in models:
        model.predict_spans(parts, *parts.spans(), k=2)


def sketch(seed: int) -> None:
    parts = documents(seed)
    n = 1 + seed % 29
    for unit in ("char", "word"):
        band_keys(parts, n=n, unit=unit, bands=3, rows=2, seed=seed)
        similarities(parts, seed % 2, np.array([0, 1]), n=n, unit=unit, seed=seed)
        lead(parts, np.array([0, 2]), 0.5, 2, n=n, unit=unit, seed=seed)
    rng = np.random.default_rng(seed)
    keys, ids = guarded(1 + seed, np.uint64), guarded(1 + seed, np.uint32)
    keys[:], ids[:] = rng.integers(0, rng.choice([1, 5, 1 << 62]) + 1, keys.size), rng.permutation(ids.size)
    sort_pairs(keys, ids)
    a, b = guarded(keys.size, np.uint32), guarded(keys.size, np.uint32)
    n_edges = star_edges(keys, ids, a, b)
    parents = guarded(keys.size, np.uint32)
    parents[:] = new_parents(keys.size)
    link(parents, a[:n_edges], b[:n_edges])
    roots(parents)


def tokens(seed: int) -> None:
    parts, table, long = documents(seed), WordTable(), WordTable()
    cut = word_ids.Cut(" \n\u3000", ".{", ["lorem", "\u2003", "😀😀"], seed % 2 == 1)
    for _ in range(2):
        found = word_ids.word_ids(parts.data, *parts.spans(), cut, word_ids.IdRequest(40, 50, 30), table, long, 20)
        words = {parts.data[a:b].tobytes() for a, b in zip(found.missing_starts, found.missing_ends, strict=True)}
        table.add([w for w in words if len(w) < 20], [[7] * (w[0] % 4) for w in words if len(w) < 20])
        long.add([w for w in words if len(w) >= 20], [[8] * (w[0] % 4) for w in words if len(w) >= 20])
    table.forget(5)
    flags = np.full(512, _pretokens.OTHER, np.uint8)
    for chars, flag in (("abcxyz", _pretokens.LETTER | _pretokens.LOWER), (" \n", _pretokens.SPACE)):
        flags[[ord(c) for c in chars]] = flag
    classes = byte_bpe.CharClasses(guarded(0x1100, np.uint8), flags)
    starts, ends = parts.spans()
    added_tokens.have_flag(parts.data, starts, ends, classes)
    segments = byte_bpe.Segments(starts, ends, np.full(starts.size, -1, np.int32))
    cut, _ = added_tokens.AddedTokens({b"b ": 900, b"a": 901, "😀".encode(): 902}).find(parts.data, segments)
    merges = byte_bpe.merge_rows([(97, 98, 0, 300), (300, 300, 1, 301), (32, 97, 2, 302), (98, 98, 3, 303)])
    numbers = np.array([seed % 3, 3, 2, 1, 0, 0], np.int64)
    tables = byte_bpe.BpeTables.make(
        numbers, classes, np.arange(256, dtype=np.int32), merges, {b" ab": 400}, ignore_merges=seed % 2 == 0
    )
    byte_bpe.BpeEncoder(tables).encode(parts.data, cut)
    ids = guarded(256, np.int32)
    ids[:] = np.arange(256)
    # joints: 64 bits, the smallest table that byte_bpe makes.
    chars = byte_bpe.CharIds(guarded(0x1100, np.int32), ids, guarded(1 << 16, np.uint8), guarded(8, np.uint8))
    chars.pages[:], chars.cuts[:], chars.joints[:] = 0, seed % 3, 0x55
    numbers = np.array([3, 0, 0, 0, 0, 0], np.int64)
    tables = byte_bpe.BpeTables.make(numbers, classes, ids, merges, {}, ignore_merges=False, chars=chars)
    byte_bpe.BpeEncoder(tables).encode(parts.data, cut)


def substrings(seed: int) -> None:
    parts = documents(seed)
    length = 16 + seed % 60
    found = selections.select(parts.data, *parts.spans(), length)
    order = np.lexsort((found.position, found.row, found.key))
    edges = np.flatnonzero(found.key[order][1:] != found.key[order][:-1]) + 1
    bounds = np.concatenate([[0], edges, [len(order)]]).astype(np.int64)
    place = (parts.spans()[0][found.row] + found.position)[order]
    count = np.ones(len(order), np.uint32)
    first = order.astype(np.uint64)
    classes.find_repeats(parts.data, place, found.low[order], found.high[order], first, count, bounds, length)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shapes: list[dict[str, Any]] = [{"loss": HS, "word_ngrams": 2}, {"loss": OVA, "quantised": True, "pruned": 20}]
        files = [random_twin(**shape).save(Path(folder) / f"{k}.bin") for k, shape in enumerate(shapes)]
        np.empty = np.zeros = guarded  # type: ignore[misc, assignment]
        models = [FastTextModel.load(path) for path in files]
        for seed in range(400):
            records(seed)
            if seed < 150:
                text(seed, models)
                sketch(seed)
                tokens(seed)
                substrings(seed)
    print("inside")


if __name__ == "__main__":
    main()
