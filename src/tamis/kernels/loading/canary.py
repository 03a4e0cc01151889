"""Calls of kernels with known answers, which a library must pass before it is used.

Not a test of kernels (those are in tests/kernels): it finds out whether machine code that was compiled, linked and
loaded works on this CPU at all. Every kernel of the group must be present, and those called here use its widest
instructions.
"""

from __future__ import annotations

import numpy as np

from tamis.errors import TamisError
from tamis.kernels.loading.library import RECORDS
from tamis.kernels.loading.native import load_all

_LINES = b'{"id": 1, "text": "caf\\u00e9 \\n' + b"the cat sat on the mat " * 8 + b'"}\n{"text": null}\n{"text": }\n'


def check(group: str) -> None:
    """Load every kernel of a group and call some. TamisError where an answer is wrong."""
    load_all(group)
    known = {RECORDS: _records, "text": _text, "sketch": _sketch, "pixels": _pixels, "tokens": _tokens}
    known["overlap"] = _overlap
    got, expected = known.get(group, lambda: ((), ()))()
    if got != expected:
        raise TamisError(f"kernels: group {group!r} answers {got}, expected {expected}")


def _records() -> tuple[object, object]:
    from tamis.kernels.records.hash128 import hash_spans
    from tamis.kernels.records.json_scan import scan_records
    from tamis.kernels.records.json_text import unescape

    buf = np.frombuffer(_LINES, np.uint8)
    found = scan_records(buf, ["text"], 1 << 20)
    _, text, _ = unescape(buf, found.types[:, 0], found.val_start[:, 0], found.val_len[:, 0])
    hi, lo = hash_spans(buf, found.start, found.end - found.start)
    spelled = "café \n" + "the cat sat on the mat " * 8
    return (found.status.tolist(), text.tobytes().decode(), f"{hi[0]:x}", f"{lo[0]:x}"), (
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
    found = scaled_square(image, 33, lambda name, n: np.zeros(n, np.uint8))
    return (found[0, 0].tolist(), found[32, 32].tolist(), int(found.astype(np.int64).sum())), (
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
    wanted, spans = IdRequest(9, 9), (np.array([0, 0]), np.array([8, buf.size]))
    found = word_ids(buf, *spans, Cut(" \u3000", "'", ["<"]), wanted, table, WordTable(), 100)
    missing = {buf[a:b].tobytes().decode() for a, b in zip(found.missing_starts, found.missing_ends, strict=True)}
    return (found.ids.tolist(), found.status.tolist(), sorted(missing)), (
        *([1, 2, 3], [1, 2], ["caf\u00e9", "on", "s", "sat"]),
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
