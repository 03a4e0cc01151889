"""read_range: any cuts of a file yield every record exactly once."""

from __future__ import annotations

import io
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tamis.formats.jsonl.ranges import Oversize, read_range
from tests.support.limits import examples

BOM = b"\xef\xbb\xbf"


def records_of(data: bytes, first: int = 0) -> list[tuple[int, bytes]]:
    """(place, line) of every line that is not empty.

    A byte order mark at the start of the file is no part of a record.
    """
    found, at = [], first
    for line in data.split(b"\n"):
        if line:
            found.append((at, line))
        at += len(line) + 1
    return found


def expected_of(data: bytes) -> list[tuple[int, bytes]]:
    skip = 3 if data.startswith(BOM) else 0
    return records_of(data[skip:], skip)


def read_all(data: bytes, cuts: list[int], max_record_bytes: int) -> tuple[list[tuple[int, bytes]], list[Oversize]]:
    file = io.BytesIO(data)
    edges = [0, *sorted(cuts), 1 << 62]
    records: list[tuple[int, bytes]] = []
    oversize: list[Oversize] = []
    for start, end in pairwise(edges):
        found = read_range(file, start, end, max_record_bytes)
        records += records_of(found.data.tobytes(), found.offset)
        oversize += found.oversize
    return records, oversize


line = st.one_of(st.binary(max_size=6), st.sampled_from([b"", b"\r", BOM, b"x" * 30, b"y" * 31]))


@settings(max_examples=examples(1000), deadline=None)
@given(
    st.lists(line, max_size=8),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0, 130), max_size=6),
    st.sampled_from([8, 30, 1000]),
)
@example([b"abc"], b"\n", False, True, [0, 1, 2, 3, 4], 1000)
@example([b"abc", b"d"], b"\n", True, True, [1, 2, 3, 4, 5], 1000)
@example([b"x" * 31, b"d"], b"\n", False, False, [3, 10, 31], 8)
def test_every_record_exactly_once(
    lines: list[bytes], newline: bytes, bom: bool, final: bool, cuts: list[int], max_record_bytes: int
) -> None:
    data = (BOM if bom else b"") + newline.join(lines) + (newline if final else b"")
    expected = expected_of(data)
    records, oversize = read_all(data, cuts, max_record_bytes)
    skipped = [(o.offset, data[o.offset : o.offset + o.length]) for o in oversize]
    # What is left out is told without a carriage return, as the scanner tells it.
    assert sorted([(at, raw.removesuffix(b"\r")) for at, raw in records] + skipped) == [
        (at, raw.removesuffix(b"\r")) for at, raw in expected
    ]
    # Only records above the limit are left out (one that lies inside its range is for the scanner to judge).
    assert all(len(raw) > max_record_bytes for _, raw in skipped)


def test_a_carriage_return_before_the_line_feed_is_no_part_of_a_record_wherever_the_file_is_cut() -> None:
    data = b"{}\r\n" + b"x" * 8 + b"\r\n" + b"y" * 9 + b"\r\n" + b"z" * 8 + b"\r"
    for cut in range(1, len(data)):
        records, oversize = read_all(data, [cut], 8)
        assert all(o == Oversize(14, 9) for o in oversize)
        assert [at for at, _ in records] == [0, 4, *([] if oversize else [14]), 25]


def test_a_record_belongs_to_the_range_of_its_first_byte() -> None:
    file = io.BytesIO(b"aaa\nbbb\nccc\n")
    assert read_range(file, 0, 4, 100).data.tobytes() == b"aaa\n"
    assert read_range(file, 0, 5, 100).data.tobytes() == b"aaa\nbbb\n"
    assert read_range(file, 4, 5, 100).data.tobytes() == b"bbb\n"
    assert read_range(file, 5, 8, 100).data.tobytes() == b""
    assert read_range(file, 8, 99, 100).data.tobytes() == b"ccc\n"
    assert read_range(file, 12, 99, 100).data.tobytes() == b""
    assert read_range(io.BytesIO(b""), 0, 99, 100).data.tobytes() == b""


@pytest.mark.parametrize("final", [b"\n", b""])
def test_an_oversize_record_is_placed_and_never_held(final: bytes) -> None:
    big = b"z" * (3 << 20)

    class Watched(io.BytesIO):
        largest = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self.largest = max(self.largest, len(data))
            return data

    file = Watched(b"aaa\n" + big + final + (b"bbb\n" if final else b""))
    found = read_range(file, 0, 10, 1000)
    assert (found.data.tobytes(), found.oversize) == (b"aaa\n", [Oversize(4, 3 << 20)])
    assert file.largest <= 1 << 20
    rest = read_range(file, 10, 1 << 62, 1000)
    assert rest.data.tobytes() == (b"bbb\n" if final else b"")


def test_a_record_of_exactly_the_limit_is_no_oversize() -> None:
    data = b"x" * 100 + b"\nb\n"
    assert read_all(data, [50], 100) == ([(0, b"x" * 100), (101, b"b")], [])
    assert read_all(data, [50], 99) == ([(101, b"b")], [Oversize(0, 100)])


def test_the_middle_of_a_stream_has_no_byte_order_mark() -> None:
    data = BOM + b"a\n"
    assert read_range(io.BytesIO(data), 0, 9, 100).data.tobytes() == b"a\n"
    assert read_range(io.BytesIO(data), 0, 9, 100, at_file_start=False).data.tobytes() == data


MB = 1_000_000


@pytest.mark.parametrize("cut", [1, 100, 5_000_000])
def test_a_record_above_the_limit_is_never_held(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "large.jsonl"
    with path.open("wb") as out:
        out.write(b"first\n")
        out.seek(40 * MB)
        out.write(b"\nlast\n")
    told: list[tuple[int, int, bool]] = []
    with path.open("rb", buffering=0) as file:
        tracemalloc.start()
        found = read_range(file, 0, 6 + cut, 10 * MB, on_large=lambda *what: told.append(what))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert found.data.tobytes() == b"first\n"
    assert found.oversize == [Oversize(6, 40 * MB - 6)]
    assert peak < cut + 8 * MB
    assert told == []


def test_a_large_record_is_reported_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    path.write_bytes(b"first\n" + b"x" * 4 * MB + b"\nlast\n")
    told: list[tuple[int, int, bool]] = []
    with path.open("rb", buffering=0) as file:
        found = read_range(file, 0, 7, 5 * MB, on_large=lambda *what: told.append(what))
        assert found.data.tobytes() == b"first\n" + b"x" * 4 * MB + b"\n"
        found = read_range(file, 6, 7, 5 * MB, on_large=lambda *what: told.append(what))
        assert (found.offset, found.data.tobytes()) == (6, b"x" * 4 * MB + b"\n")
    assert told == [(6, 4 * MB, False), (6, 4 * MB, True)]
