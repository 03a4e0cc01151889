"""assemble and assemble_plain against slices of bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.records.json_scan import scan_records
from tamis.kernels.records.splice import assemble, assemble_plain
from tests.support.limits import examples

Edit = tuple[int, int, bytes]


def twin(buf: bytes, start: list[int], end: list[int], rows: list[int], edits: list[list[Edit]]) -> list[bytes]:
    lines = []
    for row, changes in zip(rows, edits, strict=True):
        at, line = start[row], b""
        for begin, beyond, new in changes:
            line += buf[at:begin] + new
            at = beyond
        lines.append(line + buf[at : end[row]] + b"\n")
    return lines


def run(buf: bytes, start: list[int], end: list[int], rows: list[int], edits: list[list[Edit]]) -> list[bytes]:
    flat = [edit for changes in edits for edit in changes]
    out, offsets = assemble(
        np.frombuffer(buf, np.uint8),
        *(np.array(values, np.int64) for values in (start, end, rows)),
        np.cumsum([0, *(len(changes) for changes in edits)]),
        np.array([edit[0] for edit in flat], np.int64),
        np.array([edit[1] for edit in flat], np.int64),
        np.cumsum([0, *(len(edit[2]) for edit in flat)]),
        np.frombuffer(b"".join(edit[2] for edit in flat), np.uint8),
    )
    assert (offsets[0], offsets[-1]) == (0, out.size)
    return [out[offsets[i] : offsets[i + 1]].tobytes() for i in range(len(rows))]


def test_replace_insert_delete() -> None:
    buf = b'{"a":1,"b":22}\r\n{"a":333}\n'
    rows = run(
        *(buf, [0, 16], [14, 25], [1, 0, 0, 1]),
        [[(21, 24, b"4")], [(5, 6, b""), (13, 13, b',"c":5')], [], [(16, 16, b"<"), (25, 25, b">")]],
    )
    assert rows == [b'{"a":4}\n', b'{"a":,"b":22,"c":5}\n', b'{"a":1,"b":22}\n', b'<{"a":333}>\n']


def test_a_new_member_before_the_closing_brace() -> None:
    buf = b'{"a":1} \n{}\n'
    scan = scan_records(np.frombuffer(buf, np.uint8), [], 100)
    member = [b'"k":2', b',"k":2']
    edits = [[(int(scan.close[i]), int(scan.close[i]), member[int(scan.n_fields[i] > 0)])] for i in range(2)]
    assert run(buf, scan.start.tolist(), scan.end.tolist(), [0, 1], edits) == [b'{"a":1,"k":2} \n', b'{"k":2}\n']


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, list[int], list[int], list[int], list[list[Edit]]]:
    records = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=6))
    gaps = [draw(st.sampled_from([b"\n", b"\r\n", b"\n\n", b"x"])) for _ in records]
    start, end, buf = [], [], b""
    for record, gap in zip(records, gaps, strict=True):
        start.append(len(buf))
        end.append(len(buf) + len(record))
        buf += record + gap
    rows = draw(st.lists(st.integers(0, len(records) - 1), max_size=8))
    edits = []
    for row in rows:
        cuts = sorted(draw(st.lists(st.integers(start[row], end[row]), max_size=6)))
        pairs = zip(cuts[::2], cuts[1::2], strict=False)
        edits.append([(begin, beyond, draw(st.binary(max_size=20))) for begin, beyond in pairs])
    return buf, start, end, rows, edits


@settings(max_examples=examples(300), deadline=None)
@given(cases())
def test_assemble_equals_slices(case: tuple[bytes, list[int], list[int], list[int], list[list[Edit]]]) -> None:
    buf, start, end, rows, edits = case
    assert run(buf, start, end, rows, edits) == twin(buf, start, end, rows, edits)
    no_edits: list[list[Edit]] = [[] for _ in rows]
    expected = twin(buf, start, end, rows, no_edits)
    out, offsets = assemble_plain(
        np.frombuffer(buf, np.uint8), np.array(start), np.array(end), np.array(rows, np.int64)
    )
    assert out.tobytes() == b"".join(expected)
    assert np.diff(offsets).tolist() == [len(line) for line in expected]


def test_whole_file_comes_out_as_it_went_in() -> None:
    data = b'{"a":1}\n{"b":[1, 2]}\n{"c":"\xc3\xa9"}\n'
    buf = np.frombuffer(data, np.uint8)
    scan = scan_records(buf, [], 100)
    out, offsets = assemble_plain(buf, scan.start, scan.end, np.arange(3))
    assert out.tobytes() == data
    assert offsets.tolist() == [0, 8, 21, 32]


def test_last_line_without_line_feed() -> None:
    buf = np.frombuffer(b"ab\ncd", np.uint8)
    out, _ = assemble_plain(buf, np.array([0, 3]), np.array([2, 5]), np.array([0, 1, 0]))
    assert out.tobytes() == b"ab\ncd\nab\n"


@pytest.mark.parametrize(
    ("rows", "edits"),
    [
        ([2], [[]]),
        ([-1], [[]]),
        ([0], [[(1, 9, b"")]]),
        ([1], [[(1, 4, b"")]]),
        ([0], [[(2, 1, b"")]]),
        ([0], [[(1, 2, b""), (0, 1, b"")]]),
    ],
)
def test_edits_and_rows_outside_are_refused(rows: list[int], edits: list[list[Edit]]) -> None:
    with pytest.raises(ValueError, match="output row 0"):
        run(b"ab\ncd", [0, 3], [2, 5], rows, edits)


def test_plain_rows_outside_are_refused() -> None:
    buf, start = np.frombuffer(b"ab\ncd", np.uint8), np.array([0, 3])
    with pytest.raises(ValueError, match="rows must be between 0 and 1"):
        assemble_plain(buf, start, np.array([2, 5]), np.array([2]))
    with pytest.raises(ValueError, match="outside the buffer of 5 bytes"):
        assemble_plain(buf, start, np.array([2, 6]), np.array([1]))
