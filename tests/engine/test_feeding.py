"""feed: the blocks of a stream hold every record exactly once, whatever ranges an earlier run left."""

from __future__ import annotations

import gzip
import os
import tempfile
import tracemalloc
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tamis.engine.messages import Done
from tamis.engine.supervisor.coverage import Intervals
from tamis.engine.units import TO_END, Mode, Piece, PieceKind, Unit
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.worker.feed import feed
from tamis.engine.worker.read import ReadOptions, read_pieces
from tamis.formats.compression import source as compression
from tamis.formats.compression.source import PieceSource
from tamis.formats.compression.streams import StreamWriter
from tests.support.limits import examples


def run_feed(
    path: str,
    ranges: list[tuple[int, int]],
    block_bytes: int,
    max_record_bytes: int,
    kind: PieceKind = PieceKind.STREAM,
) -> tuple[list[Piece], Done]:
    """Return the blocks handed out and the report; blocks are stored next to `path`."""
    folder = os.path.dirname(path)
    unit = Unit(7, [Piece(3, kind, path, s, e) for s, e in ranges], mode=Mode.FEED, max_bytes=block_bytes)
    blocks: list[Piece] = []
    place = WorkerConfig(folder, folder, max_record_bytes)
    names, base = os.path.join(place.scratch, "f1.1"), os.path.join(folder, "staged")
    report = feed(
        unit, names, place, base, lambda news: blocks.append(news.piece), lambda: 0, ReadOptions(max_record_bytes, 0)
    )
    return blocks, report


def records_of(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    for line in data.split(b"\n"):
        if line:
            found.append((at, line))
        at += len(line) + 1
    return found


def lines_in(blocks: list[Piece]) -> list[tuple[int, bytes]]:
    found = []
    for block in blocks:
        with open(block.path, "rb") as file:
            data = file.read()
        assert len(data) == block.end - block.start
        found += [(block.start + at, line) for at, line in records_of(data)]
    return found


line = st.one_of(
    st.binary(max_size=5).map(lambda b: b.replace(b"\n", b"")), st.sampled_from([b"", b"x" * 30, b"y" * 70])
)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(line, max_size=12),
    st.booleans(),
    st.lists(st.integers(0, 200), max_size=6),
    st.integers(1, 60),
    st.sampled_from([16, 1000]),
    st.booleans(),
)
@example([b"aaa", b"bbb", b"ccc"], True, [0, 2, 5, 7], 4, 1000, False)
@example([b"x" * 70, b"b"], True, [], 1, 16, False)
def test_every_record_of_the_missing_ranges_exactly_once(
    lines: list[bytes], final: bool, cuts: list[int], block_bytes: int, max_record_bytes: int, odd: bool
) -> None:
    data = b"\n".join(lines) + (b"\n" if final else b"")
    edges = [0, *sorted(set(cuts)), TO_END]
    ranges = list(pairwise(edges))[int(odd) :: 2]
    ranges = [(s, e) for s, e in ranges if s < e] or [(0, TO_END)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.jsonl.gz")
        with gzip.open(path, "wb", 1) as out:
            out.write(data)
        blocks, report = run_feed(path, ranges, block_bytes, max_record_bytes)
        found = lines_in(blocks)
    wanted = [(at, raw) for at, raw in records_of(data) if any(s <= at < e for s, e in ranges)]
    held_back = [(at, raw) for at, raw in wanted if (at, raw) not in found]
    assert sorted(found + held_back) == wanted
    assert all(len(raw) > max_record_bytes for _, raw in held_back)
    assert report.n_records == len(held_back)
    # Blocks and report together cover the missing ranges, so that nothing is read again and nothing is left.
    done = Intervals()
    for s, e in [(b.start, b.end) for b in blocks] + [(s, e) for _, s, e, _ in report.covered]:
        done.add(s, e)
    ends = [e for _, _, e, is_end in report.covered if is_end]
    if ranges[-1][1] == TO_END:
        assert ends == [len(data)]
        assert all(done.covers(min(s, len(data)), min(e, len(data))) for s, e in ranges)


def test_a_carriage_return_does_not_make_a_record_oversize_wherever_it_is_read(tmp_path: Any) -> None:
    path, large = str(tmp_path / "a.jsonl.gz"), b"z" * 65_535
    with gzip.open(path, "wb") as out:
        out.write(large + b"\r\n{}\r\n")
    # Read in pieces of 65,536 bytes: the line feed is in the second.
    blocks, report = run_feed(path, [(0, TO_END)], 64, 65_535)
    assert lines_in(blocks) == [(0, large + b"\r"), (65_537, b"{}\r")]
    assert report.n_records == 0


def test_an_oversize_record_goes_to_quarantine_with_its_bytes(tmp_path: Any) -> None:
    path = str(tmp_path / "a.jsonl.gz")
    with gzip.open(path, "wb") as out:
        out.write(b'{"a":1}\n' + b"z" * 300_000 + b'\n{"a":2}\n')
    blocks, report = run_feed(path, [(0, TO_END)], 64, 100_000)
    assert lines_in(blocks) == [(0, b'{"a":1}'), (300009, b'{"a":2}')]
    raw = next(f.path for f in report.files if f.path.endswith(".raw"))
    with open(raw, "rb") as file:
        assert file.read() == b"z" * 300_000
    assert (3, 8, 300009, False) in report.covered


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 300), st.sampled_from([16, 100_000]), st.integers(0, 3000))
def test_a_damaged_stream_yields_what_stands_before_and_names_the_rest(
    n_lost: int, block_bytes: int, max_record_bytes: int, start: int
) -> None:
    data = b"".join(
        b'{"n":%d,"t":"%s"}\n' % (i, bytes(97 + (i * 7 + j * j) % 26 for j in range(i % 23))) for i in range(200)
    )
    start = data.rfind(b"\n", 0, start) + 1  # where an earlier run ended
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.jsonl.gz")
        packed = gzip.compress(data, 6)
        with open(path, "wb") as out:
            out.write(packed[: max(30, len(packed) - n_lost)])
        blocks, report = run_feed(path, [(start, TO_END)], block_bytes, max_record_bytes)
        found = lines_in(blocks)
        decoded = next(e for _, _, e, is_end in report.covered if is_end)
    whole = data[: data.rfind(b"\n", 0, decoded) + 1]
    wanted = [r for r in records_of(whole) if r[0] >= start]
    assert [r for r in wanted if len(r[1]) <= max_record_bytes] == [r for r in found if len(r[1]) <= max_record_bytes]
    assert report.ledger.n_bad_ranges == 1
    done = Intervals()
    done.add(0, start)
    for s, e in [(b.start, b.end) for b in blocks] + [(s, e) for _, s, e, _ in report.covered]:
        done.add(s, e)
    assert done.covers(0, decoded)


def test_a_damage_before_the_wanted_range_is_named(tmp_path: Any) -> None:
    path = str(tmp_path / "a.jsonl.gz")
    packed = gzip.compress(b'{"a":1}\n' * 10)
    with open(path, "wb") as out:
        out.write(packed[:-8])
    _, report = run_feed(path, [(500, TO_END)], 64, 1000)
    assert report.ledger.n_bad_ranges == 1


def test_a_file_that_is_gone_is_named(tmp_path: Any) -> None:
    blocks, report = run_feed(str(tmp_path / "gone.jsonl.gz"), [(0, TO_END)], 64, 1000)
    assert blocks == []
    assert report.ledger.n_lost_files == 1
    assert report.ledger.n_bad_ranges == 1


def test_rows_of_a_row_group_as_blocks(tmp_path: Any) -> None:
    path = str(tmp_path / "a.parquet")
    table = pa.table({"n": list(range(5000)), "t": ["x" * 50] * 5000})
    pq.write_table(table, path, row_group_size=5000)
    blocks, report = run_feed(path, [(1000, 4500)], 100_000, 1000, PieceKind.ROWS)
    assert len(blocks) > 1
    assert report.n_records == 0
    contents = read_pieces(blocks, [], ReadOptions(1000, 0))
    assert [n for b in contents.batches for n in b.column("n").to_pylist()] == list(range(1000, 4500))


def test_a_record_of_any_size_is_fed_in_little_memory(tmp_path: Any) -> None:
    """One block of its own, or quarantine: in neither case is it held."""
    path, n = str(tmp_path / "a.jsonl.zst"), 24 << 20
    with StreamWriter(path, "zst") as out:
        for i in range(3):
            out.write(b'{"a":%d}\n' % i)
            for _ in range(24):
                out.write(b"z" * (1 << 20))
            out.write(b"\n")
    for limit in (1 << 30, n - 1):
        tracemalloc.start()
        blocks, report = run_feed(path, [(0, TO_END)], 1 << 16, limit)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20
        large = [b for b in blocks if b.end - b.start > n]
        assert len(large) == (3 if limit > n else 0)
        assert report.n_records == (0 if limit > n else 3)
        covered = sum(b.end - b.start for b in blocks) + sum(e - s for _, s, e, _ in report.covered)
        assert covered == 3 * (n + 9)
    raw = [f for f in report.files if f.path.endswith(".raw")]
    assert [os.path.getsize(f.path) for f in raw] == [n] * 3
    assert not [f for f in os.listdir(tmp_path) if f.endswith(".block") and os.path.getsize(tmp_path / f) > n * 2]


def test_a_fault_in_a_long_record_sets_its_beginning_aside(tmp_path: Any) -> None:
    path = str(tmp_path / "a.jsonl.gz")
    with gzip.open(path, "wb") as out:
        out.write(b'{"a":1}\n' + os.urandom(3 << 20).replace(b"\n", b" "))
    with open(path, "r+b") as file:
        file.truncate(2 << 20)
    blocks, report = run_feed(path, [(0, TO_END)], 1 << 16, 1 << 30)
    assert lines_in(blocks) == [(0, b'{"a":1}')]
    assert report.ledger.lost_bytes == 2 << 20
    assert [c[3] for c in report.covered][-1] is True


def test_a_disk_that_fails_under_a_stream_is_a_fault_of_its_rest(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a.jsonl.gz")
    with gzip.open(path, "wb") as out:
        out.write(b"".join(b'{"a":%d}\n' % i for i in range(100_000)))
    fill = PieceSource._fill

    def broken(self: PieceSource) -> bool:
        if self.offset() > 0:
            raise OSError(5, "Input/output error")
        return fill(self)

    monkeypatch.setattr(compression, "PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(PieceSource, "_fill", broken)
    blocks, report = run_feed(path, [(0, TO_END)], 1 << 16, 1000)
    assert 0 < len(lines_in(blocks)) < 100_000
    assert report.ledger.lost_bytes == os.path.getsize(path) - (1 << 16)
