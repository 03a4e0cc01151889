"""Call every kernel through its wrapper on small inputs and print the results, to compare ways to run them.

A script for test_bodies.py and test_levels.py, not a test: how kernels run is decided once per process (TAMIS_KERNELS).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tamis.kernels.buffers import StringBuffers
from tamis.kernels.loading import native
from tamis.kernels.loading.library import all_groups, import_all
from tamis.kernels.markup.html_tags import count_tags
from tamis.kernels.overlap.folding import folding
from tamis.kernels.overlap.ngrams import Scanner, add_all, match_all, new_filter
from tamis.kernels.pixels.scaling import scaled_square
from tamis.kernels.records import hash128, json_scan, json_text
from tamis.kernels.records.join import join_rows
from tamis.kernels.records.record_lines import record_lines
from tamis.kernels.records.splice import assemble, assemble_plain
from tamis.kernels.sketch import band_keys, components, similarity, sorting
from tamis.kernels.substrings.classes import find_repeats
from tamis.kernels.substrings.selections import select
from tamis.kernels.text import fasttext_kernels, long_repetition, split_lines, text_stats, word_stats
from tamis.kernels.tokens import _pretokens, added_tokens, byte_bpe
from tamis.kernels.tokens.word_ids import Cut, IdRequest, word_ids
from tamis.kernels.tokens.word_table import WordTable
from tamis.stages.text.fasttext.model import FastTextModel
from tamis.stages.text.fasttext.training import TrainingOptions, train_classifier
from tests.reference import json_fuzz
from tests.stages.text.fasttext.fasttext_twin import HS, OVA, SOFTMAX, random_twin

DOCUMENTS = [
    "The cat sat on the mat. The cat sat on the mat!\n\n"
    "See https://example.org/a?b=c, or read more...\n- one\n- two …\n",
    "naïve café — 漢字かな交じり文 😀 \u3000 spaces\u2003everywhere",
    "",
    "   \n \t ",
    "lorem ipsum { javascript } terms of use\n" * 3,
    "a bb ccc a bb ccc a bb ccc dddd 12 34.5 #tag www.example.com " * 4,
    "x" * 150 + " " + "é" * 70 + " end.",
    "0123456789 abcdefghijklmnopqrstuvwxyz THE END of it, and then some more words to fill two blocks of bytes",
]


def buffers(documents: list[str] = DOCUMENTS) -> StringBuffers:
    data = [document.encode() for document in documents]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in data])]).astype(np.int64)
    validity = np.array([document != "" for document in documents])
    return StringBuffers(offsets, np.frombuffer(b"".join(data) or b" ", np.uint8), validity)


def records() -> Iterator[Any]:
    for seed in range(12):
        data = json_fuzz.mutated_lines(seed, 4) or b"{}"
        buf = np.frombuffer(data, np.uint8)
        found = json_scan.scan_records(buf, ["text", "id"], 1 << 20)
        yield [*found.start, *found.end, *found.close, *found.n_fields, *found.status, *found.types.reshape(-1)]
        yield json_scan.rescan(buf, found, ["a", "meta"])
        yield json_scan.discover_keys(buf, found)
        yield json_scan.count_lines(json_text.at_least_a_block(buf), buf.size)
        offsets, text, valid = json_text.unescape(buf, found.types[:, 0], found.val_start[:, 0], found.val_len[:, 0])
        yield [offsets, text, valid, *json_text.escape(offsets, text, valid, 0, valid.size)]
        yield hash128.hash_spans(buf, found.start, found.end - found.start, seed)
        out = np.zeros(buf.size, np.uint8)
        json_text.copy_spans(buf, found.start, found.end - found.start, out, found.start)
        yield out
        rows = np.arange(found.n_records)
        yield assemble_plain(buf, found.start, found.end, rows)
        here = np.arange(rows.size + 1)
        yield assemble(
            buf,
            found.start,
            found.end,
            rows,
            here,
            found.end,
            found.end,
            2 * here,
            np.full(2 * rows.size, 33, np.uint8),
        )
        spans = np.stack([found.start, found.start], axis=1), np.stack([found.end - found.start] * 2, axis=1)
        yield join_rows(buf, buf[:0], *spans, [b'"a":', b'"b":'])
        yield record_lines(buf)
    lines = np.frombuffer(b'{"a": 1}\n{"b": [2]}\n', np.uint8)
    yield record_lines(lines)
    parts = buffers()
    hi, lo = hash128.hash_arrow_strings(parts.offsets, parts.data, parts.validity, 3)
    yield [hi, lo, *hash128.mix_rows(hi, lo, 5), hash128.sum128(hi, lo)]


def text() -> Iterator[Any]:
    parts = buffers()
    names = sorted(text_stats.STATISTICS)
    yield text_stats.statistics(parts, names)
    yield list(split_lines.line_table(parts))
    yield list(split_lines.line_table(parts, only_terminal=True))
    everything = word_stats.FractionRequest(last_n=4, duplicates=28, tops=28, joins=28)
    document = DOCUMENTS[5].encode()
    raw = np.frombuffer(document, np.uint8)
    yield long_repetition.long_fractions(
        raw, 0, raw.size, len(document.split()), len(document.decode()), everything, 64
    )
    starts, ends = parts.spans()
    begins_out, ends_out = np.empty_like(starts), np.empty_like(ends)
    fasttext_kernels.windows(parts.data, starts, ends, 50, begins_out, ends_out)
    yield [begins_out, ends_out]
    shapes: list[dict[str, Any]] = [
        {"loss": HS, "word_ngrams": 2},
        {"loss": OVA, "quantised": True},
        {"loss": SOFTMAX, "quantised": True, "pruned": 20},
    ]
    with tempfile.TemporaryDirectory() as folder:
        for shape in shapes:
            model = FastTextModel.load(random_twin(**shape).save(Path(folder) / "model.bin"))
            yield model.predict(["the cat is naïve", "être ou ne pas être", "日本 の 首都", ""], k=2)
    options = TrainingOptions(dim=4, epochs=2, buckets=50, min_count=1)
    made = train_classifier(pa.array(DOCUMENTS, pa.large_string()), ["a", "b"] * (len(DOCUMENTS) // 2), options)
    yield np.frombuffer(made[-32:], "<f4").round(3)  # the vectors of the labels


def sketch() -> Iterator[Any]:
    parts = buffers([*DOCUMENTS, DOCUMENTS[5] + "and more", "漢字 かな " * 30])
    for n, unit in ((5, "char"), (2, "word")):
        shingles: dict[str, Any] = {"n": n, "unit": unit, "seed": 7}
        yield band_keys.band_keys(parts, **shingles, bands=3, rows=2)
        yield similarity.similarities(parts, 5, np.arange(10), **shingles)
        yield similarity.lead(parts, np.array([0, 4, 10]), 0.5, 3, **shingles)
    yield band_keys.band_keys(parts, n=5, unit="char", bands=2, rows=2, seed=1, wide=True, method="permutations")
    numbers = np.random.default_rng(1)
    keys = np.concatenate([numbers.integers(0, 1 << 63, 60).astype(np.uint64), np.full(40, 77, np.uint64)])
    ids = numbers.permutation(100).astype(np.uint32)
    sorting.sort_pairs(keys, ids)
    a, b = np.zeros(100, np.uint32), np.zeros(100, np.uint32)
    n_edges = sorting.star_edges(keys, ids, a, b)
    parents = components.new_parents(100)
    components.link(parents, a[:n_edges], b[:n_edges])
    components.roots(parents)
    yield [keys, ids, a, b, parents]


def pixels() -> Iterator[Any]:
    numbers = np.random.default_rng(2)
    for height, width, side in ((50, 41, 33), (36, 60, 40), (9, 7, 12)):
        image = numbers.integers(0, 256, (height, width, 3)).astype(np.uint8)
        yield scaled_square(image, side, lambda name, n: np.zeros(n, np.uint8))


def tokens() -> Iterator[Any]:
    parts, table, long = buffers(), WordTable(), WordTable()
    words = sorted({w.encode() for document in DOCUMENTS[1:] for w in document.split()})
    for some in (words[::2], words[1::2]):
        table.add([w for w in some if len(w) < 100], [[*w[:3]] for w in some if len(w) < 100])
        long.add([w for w in some if len(w) >= 100], [[*w[:3]] for w in some if len(w) >= 100])
        wanted = IdRequest(20, 24, 60, 110, np.array([1], np.int32), np.array([2, 3], np.int32))
        found = word_ids(parts.data, *parts.spans(), Cut(" \n\u3000", ".", ["#t"], True), wanted, table, long, 100)
        yield list(found)
        yield [table.ids_of(w) for w in words]
    table.forget(1000)
    yield [table.ids_of(w) for w in words]
    yield from byte_pairs(parts)


def byte_pairs(parts: StringBuffers) -> Iterator[Any]:
    starts, ends = parts.spans()
    flags = np.full(256, _pretokens.OTHER, np.uint8)
    for chars, flag in (("abc", _pretokens.LETTER | _pretokens.LOWER), ("T", _pretokens.LETTER | _pretokens.UPPER)):
        flags[[ord(c) for c in chars]] = flag
    flags[[9, 10, 32]] = _pretokens.SPACE
    classes = byte_bpe.CharClasses(np.zeros(0x1100, np.uint8), flags)
    yield added_tokens.have_flag(parts.data, starts, ends, classes)
    segments = byte_bpe.Segments(starts, ends, np.full(starts.size, -1, np.int32))
    cut, rows = added_tokens.AddedTokens({b"cat": 900, b"\n": 901, "漢".encode(): 902}).find(parts.data, segments)
    yield [*cut, rows]
    merges = byte_bpe.merge_rows(
        [(ord(a), ord(b), k, 300 + k) for k, (a, b) in enumerate(zip("abxt ax", "cbxhtxx", strict=True))]
    )
    merges = np.concatenate([merges, byte_bpe.merge_rows([(302, 302, 8, 310), (310, 310, 9, 311), (303, 101, 7, 312)])])
    for family, words in ((0, {}), (1, {b" sat": 400, b"xxxx": 401}), (2, {b"ab": 300})):
        numbers = np.array([family, 3, family, 1, 0, 0], np.int64)
        tables = byte_bpe.BpeTables.make(
            numbers, classes, np.arange(256, dtype=np.int32), merges, words, ignore_merges=family == 1
        )
        yield byte_bpe.BpeEncoder(tables).encode(parts.data, cut)
    chars = byte_bpe.CharIds.make(
        {ord(c): ord(c) for c in "abcehtx "} | {ord("漢"): 299},
        [(b"a", b"b"), (b"x", b"x"), (b"a", b"xx"), (b"bt", b"h"), (b"th", b"ex")],
    )
    tables = byte_bpe.BpeTables.make(
        np.array([3, 0, 0, 0, 0, 0], np.int64),
        classes,
        np.arange(256, dtype=np.int32),
        merges,
        {},
        ignore_merges=False,
        chars=chars,
    )
    yield byte_bpe.BpeEncoder(tables).encode(parts.data, cut)


def substrings() -> Iterator[Any]:
    parts = buffers([*DOCUMENTS, *DOCUMENTS[::2], "ab" * 90])
    starts, ends = parts.spans()
    for length in (16, 33):
        found = select(parts.data, starts, ends, length)
        yield [found.row, found.position, found.reach, found.span, found.key, found.context]
        order = np.lexsort((found.position, found.row, found.key))
        bounds = np.append(np.flatnonzero(np.diff(found.key[order], prepend=found.key[order][:1] + 1)), len(order))
        place = (starts[found.row] + found.position)[order]
        first = order.astype(np.uint64)
        count = np.where(found.span[order] > 0, 2, 1).astype(np.uint32)
        repeats = find_repeats(parts.data, place, found.low[order], found.high[order], first, count, bounds, length)
        yield [repeats.candidate, repeats.low, repeats.high, repeats.first, repeats.count]


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def overlap() -> Iterator[Any]:
    parts = buffers()
    totals = np.zeros((parts.n_rows, 2), np.int64)
    scanner = Scanner(folding(), 3, 2)
    windows = list(scanner.scan(parts.data, *parts.spans(), totals))
    yield [totals.tolist(), [w.fields.tolist() for w in windows], [w.hashes.tolist() for w in windows]]
    known = new_filter(10)
    add_all(windows[0].hashes[::2], known)
    yield known.tolist()
    passed = Scanner(folding(), 3, 2, known).scan(parts.data, *parts.spans(), totals)
    yield [w.hashes.tolist() for w in passed]
    starts, ends = parts.spans()
    yield match_all(
        folding(), parts.data, starts, ends, parts.data, starts, ends, np.arange(len(starts)) % 2 == 0
    ).tolist()


def markup() -> Iterator[Any]:
    page = b"<div><svg><a/><p></svg><!--<b>--><script><i></script></div></x><title>" * 3
    yield [list(count_tags(page, *limits)) for limits in ((100, 100), (5, 100), (100, 2))]


def main() -> None:
    called: set[str] = set()
    for kind in (native.Kernel, native.PythonKernel):

        def noted(self: Any, *arguments: Any, call: Any = kind.__call__) -> Any:
            called.add(self.name)
            return call(self, *arguments)

        kind.__call__ = noted  # type: ignore[method-assign]
    groups = {
        "records": records,
        "text": text,
        "sketch": sketch,
        "pixels": pixels,
        "tokens": tokens,
        "substrings": substrings,
        "overlap": overlap,
        "markup": markup,
    }
    found = {name: [plain(one) for one in of()] for name, of in groups.items()}
    modules = [sys.modules[name] for group in all_groups() for name in import_all(group)]
    every = {k.name for m in modules for k in vars(m).values() if isinstance(k, native.Kernel | native.PythonKernel)}
    json.dump({"found": found, "not called": sorted(every - called), "kernels": len(every)}, sys.stdout)


if __name__ == "__main__":
    main()
