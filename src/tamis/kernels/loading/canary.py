"""Calls of kernels with known answers, which a library must pass before it is used.

Not a test of kernels (those are in tests/kernels): it finds out whether machine code that was compiled, linked and
loaded works on this CPU at all. Every kernel of the group must be present, and those called here use its widest
instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tamis.errors import TamisError
from tamis.kernels.loading.library import RECORDS
from tamis.kernels.loading.native import load_all

_LINES = b'{"id": 1, "text": "caf\\u00e9 \\n' + b"the cat sat on the mat " * 8 + b'"}\n{"text": null}\n{"text": }\n'


def check(group: str) -> None:
    """Load every kernel of a group and call some. TamisError where an answer is wrong."""
    load_all(group)
    checks = {
        RECORDS: _records,
        "text": _text,
        "sketch": _sketch,
        "pixels": _pixels,
        "tokens": _tokens,
        "substrings": _substrings,
        "overlap": _overlap,
        "markup": _markup,
    }
    got, expected = checks.get(group, lambda: ((), ()))()
    if got != expected:
        raise TamisError(f"kernels: group {group!r} answers {got}, expected {expected}")


def _records() -> tuple[object, object]:
    from tamis.kernels.records.hash128 import hash_spans
    from tamis.kernels.records.json_scan import scan_records
    from tamis.kernels.records.json_text import unescape

    buf = np.frombuffer(_LINES, np.uint8)
    result = scan_records(buf, ["text"], 1 << 20)
    _, text, _ = unescape(buf, result.types[:, 0], result.val_start[:, 0], result.val_len[:, 0])
    hi, lo = hash_spans(buf, result.start, result.end - result.start)
    spelled = "café \n" + "the cat sat on the mat " * 8
    return (result.status.tolist(), text.tobytes().decode(), f"{hi[0]:x}", f"{lo[0]:x}"), (
        *([0, 0, 2], spelled, "6a20f6e8d5c025a1", "1dc77cbd9ac1545"),
    )


def _text() -> tuple[object, object]:
    from tamis.kernels.buffers import StringBuffers
    from tamis.kernels.text.text_stats import statistics

    document = ("Seen at the sea: café, naïve, 漢字.\n" + "the cat sat on the mat " * 8).encode()
    parts = StringBuffers(np.array([0, len(document)]), np.frombuffer(document, np.uint8), None)
    names = ["words", "chars", "duplicate_5_gram_fraction", "newlines"]
    found = {name: round(float(values[0]), 6) for name, values in statistics(parts, names).items()}
    return found, {"words": 55.0, "chars": 218.0, "duplicate_5_gram_fraction": 0.733945, "newlines": 1.0}


def _sketch() -> tuple[object, object]:
    from tamis.kernels.buffers import StringBuffers
    from tamis.kernels.sketch.band_keys import band_keys

    document = ("the cat sat on the mat, " * 20 + "and 漢字").encode()
    parts = StringBuffers(np.array([0, len(document)]), np.frombuffer(document, np.uint8), None)
    keys, n_shingles = band_keys(parts, n=8, unit="char", bands=2, rows=3, seed=1)
    return ([f"{key:x}" for key in keys[0].tolist()], n_shingles.tolist()), (
        ["8e950cc4dacb7ea7", "609386adf8efc943"],
        [479],
    )


def _pixels() -> tuple[object, object]:
    from tamis.kernels.pixels.scaling import scaled_square

    image = (np.arange(60 * 50 * 3, dtype=np.int64) * 37 % 251).astype(np.uint8).reshape(60, 50, 3)
    pixels = scaled_square(image, 33, lambda name, n: np.zeros(n, np.uint8))
    return (pixels[0, 0].tolist(), pixels[32, 32].tolist(), int(pixels.astype(np.int64).sum())), (
        [92, 134, 177],
        [120, 158, 201],
        408410,
    )


def _tokens() -> tuple[object, object]:
    from tamis.kernels.tokens.word_ids import Cut, IdRequest, word_ids
    from tamis.kernels.tokens.word_table import WordTable

    text = "the cat sat on the caf\u00e9's mat\u3000" * 8
    buf, table = np.frombuffer(text.encode(), np.uint8), WordTable()
    table.add([b"the", b"cat", b"'"], [[1], [2, 3], [4]])
    request, spans = IdRequest(9, 9), (np.array([0, 0]), np.array([8, buf.size]))
    result = word_ids(buf, *spans, Cut(" \u3000", "'", ["<"]), request, table, WordTable(), 100)
    missing = {buf[a:b].tobytes().decode() for a, b in zip(result.missing_starts, result.missing_ends, strict=True)}
    return (result.ids.tolist(), result.status.tolist(), sorted(missing), _byte_pairs(buf)), (
        *([1, 2, 3], [1, 2], ["caf\u00e9", "on", "s", "sat"]),
        [301, 32, 99, 300, 32, 115, 300, 32, 111, 110],
    )


def _byte_pairs(buf: np.ndarray[Any, Any]) -> Any:
    from tamis.kernels.tokens._pretokens import LETTER, LOWER, OTHER, SPACE
    from tamis.kernels.tokens.byte_bpe import BpeEncoder, BpeTables, CharClasses, Segments, merge_rows

    flags = np.full(256, OTHER, np.uint8)
    flags[97:123], flags[32] = LETTER | LOWER, SPACE
    merges = merge_rows([(97, 116, 0, 300), (116, 104, 1, 302), (302, 101, 2, 303), (303, 32, 3, 304)])
    classes = CharClasses(np.zeros(0x1100, np.uint8), flags)
    bytes_ = np.arange(256, dtype=np.int32)
    tokens = {b"the": 301, b" c": 305}
    tables = BpeTables.make(np.array([0, 0, 1, 0, 0, 0]), classes, bytes_, merges, tokens, ignore_merges=True)
    segments = Segments(np.array([0]), np.array([14]), np.array([-1], np.int32))
    return BpeEncoder(tables).encode(buf, segments)[0].tolist()


def _markup() -> tuple[object, object]:
    from tamis.kernels.markup.html_tags import count_tags

    page = b"<html><body><!-- <b> --><P>caf\xc3\xa9<script>'<i>'</SCRIPT>" + b"<div><td><a/></td></div>" * 8
    return [tuple(count_tags(page, *limits)) for limits in ((99, 4), (99, 3), (20, 20))], [(28, 0), (6, 2), (21, 1)]


def _substrings() -> tuple[object, object]:
    from tamis.kernels.substrings.classes import find_repeats
    from tamis.kernels.substrings.selections import select

    buf = np.frombuffer(b"the cat sat on the mat; and then " * 2 + b"the dog did what the cat sat on the mat", np.uint8)
    found = select(buf, np.array([0]), np.array([buf.size]), 16)
    place, first = found.position.astype(np.int64), found.position.astype(np.uint64)
    count, bounds = np.ones(len(found), np.uint32), np.array([0, len(found)])
    repeats = find_repeats(buf, place, found.low, found.high, first, count, bounds, 16)
    n_windows = int((repeats.high - repeats.low + 1).sum())
    return (found.position.tolist(), f"{found.key[0]:x}", n_windows), (
        [6, 12, 19, 28, 30, 39, 45, 52, 61, 63, 66, 67, 74, 79, 83, 89],
        *("f96cf9603889d8dd", 53),
    )


def _overlap() -> tuple[object, object]:
    from tamis.kernels.overlap.folding import folding
    from tamis.kernels.overlap.ngrams import Scanner, add_all, new_filter

    text = "The cat\u2019s caf\u00e9: \u6f22\u5b57, on a mat".encode()
    row = np.frombuffer(text, np.uint8), np.array([0]), np.array([len(text)])
    totals, known = np.zeros((1, 2), np.int64), new_filter(20)
    (every,) = Scanner(folding(), 3).scan(*row, totals)
    add_all(every.hashes[::3], known)
    passed = [w.field("token").tolist() for w in Scanner(folding(), 3, 0, known).scan(*row, totals)]
    return (totals.tolist(), every.field("token_end").tolist(), passed), ([[9, 32]], [3, 4, 6, 7, 8, 9, 9], [[0, 3, 6]])
