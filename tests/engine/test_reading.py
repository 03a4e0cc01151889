"""Pieces as documents; everything that is no document is named."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis import InProcessExecutor, Pipeline
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.units import MIN_ROWS_BYTES, TO_END, Mode, Piece, PieceKind
from tamis.engine.worker import read as reading
from tamis.engine.worker.read import Contents, ReadOptions, TooLarge, read_pieces
from tamis.formats.input_files.listing import FileList
from tamis.formats.parquet import format as parquet
from tamis.stages.text.io.reader import DocumentReader, ParquetReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter

LIMITS = ReadOptions(1000, 0)


def texts(contents: Contents, name: str = "a") -> list[object]:
    return [v for b in contents.batches for v in b.column(name).to_pylist()]


def test_several_files_are_one_batch_and_bad_records_are_placed(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'\xef\xbb\xbf{"a":1}\nbad\n\n{"a":2}')
    (tmp_path / "y.jsonl").write_bytes(b'{"a":3}\n[]\n')
    pieces = [
        Piece(i, PieceKind.BYTES, str(tmp_path / n), 0, (tmp_path / n).stat().st_size)
        for i, n in enumerate(("x.jsonl", "y.jsonl"))
    ]
    contents = read_pieces(pieces, ["a"], LIMITS)
    assert texts(contents) == [1, 2, 3]
    assert [(b.file, b.offset, b.length, b.raw, b.n) for b in contents.bad] == [
        (0, 11, 3, b"bad", 1),
        (1, 8, 2, b"[]", 1),
    ]
    assert (contents.n_records, contents.n_blank) == (5, 1)
    assert contents.covered == [(0, 0, 23, False), (1, 0, 11, False)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(['{"a":1}', '{"a":22}', "bad", "", '{"a":"' + "x" * 40 + '"}']), max_size=8),
    st.integers(0, 120),
    st.integers(8, 60),
)
def test_a_cut_and_its_halves_hold_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cut: int, max_record: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.jsonl"
    path.write_text("\n".join(lines))
    size, limits = path.stat().st_size, ReadOptions(max_record, 0)
    whole = read_pieces([Piece(0, PieceKind.BYTES, str(path), 0, size)], [], limits)
    cut = whole.cut if whole.cut >= 0 else min(cut, size)
    halves = [read_pieces([Piece(0, PieceKind.BYTES, str(path), s, e)], [], limits) for s, e in ((0, cut), (cut, size))]
    as_text = [[str(v) for v in texts(c)] for c in (whole, *halves)]
    assert as_text[1] + as_text[2] == as_text[0]
    assert sorted((b.offset, b.length) for h in halves for b in h.bad) == sorted(
        (b.offset, b.length) for b in whole.bad
    )
    if whole.cut >= 0:
        assert all(h.n_records for h in halves)


def test_a_stream_that_is_larger_than_its_bound_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a":1}\n' * 1000))
    piece = Piece(4, PieceKind.STREAM, str(path), 0)
    assert len(texts(read_pieces([piece], [], LIMITS))) == 1000
    with pytest.raises(TooLarge) as caught:
        read_pieces([piece], [], ReadOptions(1000, 100))
    assert caught.value.report.file == 4


def test_a_damaged_stream_keeps_what_stands_before(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a":1}\n' * 10)[:-4])
    contents = read_pieces([Piece(0, PieceKind.STREAM, str(path), 0)], [], LIMITS)
    assert texts(contents) == [1] * 10
    assert [b.n for b in contents.bad] == [0]


def test_a_file_that_changed_or_is_gone_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a":1}\n')
    contents = read_pieces([Piece(0, PieceKind.BYTES, str(path), 0, 8)], [], ReadOptions(1000, 0, {str(path): (7, 0)}))
    assert (contents.batches, contents.bad[0].whole_file) == ([], True)
    assert "it had 7 bytes when the run began and has 8 now" in contents.bad[0].reason
    gone = read_pieces([Piece(0, PieceKind.BYTES, str(tmp_path / "gone.jsonl"), 0, 8)], [], LIMITS)
    assert gone.bad[0].reason == "cannot be read: No such file or directory"


def bad_text(path: Path) -> None:
    good = pa.array([b"a", b"caf\xe9", b"c", b"\xff", b"e"], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 5, good.buffers())
    pq.write_table(pa.table({"a": broken, "n": [0, 1, 2, 3, 4], "z": ["z"] * 5}), path, row_group_size=2)


def test_rows_whose_text_is_not_utf8_are_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    bad_text(path)
    contents = read_pieces([Piece(2, PieceKind.ROWS, str(path), 1, TO_END)], [], LIMITS)
    assert (texts(contents), texts(contents, "n")) == (["c", "e"], [2, 4])
    assert [(b.file, b.offset, b.length, b.n, b.unit) for b in contents.bad] == [
        (2, 1, 1, 1, "rows"),
        (2, 3, 1, 1, "rows"),
    ]
    assert contents.bad[0].reason == "field 'a' is not valid UTF-8"
    assert contents.bad[0].raw == b'{"a": "caf\\\\xe9", "n": 1, "z": "z"}'
    assert contents.n_records == 4


def test_only_the_requested_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    bad_text(path)
    contents = read_pieces(
        [Piece(2, PieceKind.ROWS, str(path), 0, TO_END)], [], ReadOptions(1000, 0, {}, ("z", "n", "none"))
    )
    assert contents.bad == []
    assert [b.get_columns() for b in contents.batches] == [["z", "n"]]
    assert texts(contents, "n") == [0, 1, 2, 3, 4]


def test_a_run_over_bad_text_balances(tmp_path: Path) -> None:
    bad_text(tmp_path / "x.parquet")
    pipeline = Pipeline(
        "p", stages=[ParquetReader(str(tmp_path / "x.parquet"), fields=["n", "a"]), JsonlWriter(str(tmp_path / "out"))]
    )
    result = pipeline.execute(InProcessExecutor(), memory="512MB")
    assert (result.ledger.records.n, result.ledger.quarantined.n, result.ledger.written.n) == (5, 2, 3)
    assert result.ledger.problems() == []
    written = b"".join(p.read_bytes() for p in (tmp_path / "out").glob("*.jsonl"))
    assert written == b'{"n":0,"a":"a"}\n{"n":2,"a":"c"}\n{"n":4,"a":"e"}\n'


@pytest.mark.parametrize("kind", [PieceKind.ROWS, PieceKind.ROW_BLOCK])
def test_rows_larger_than_max_record_are_set_aside_as_records_are(tmp_path: Path, kind: PieceKind) -> None:
    table = pa.table({"a": ["x" * 999, "y" * 1001, "z", b"\xff".decode("latin-1") * 700], "n": [1, 2, 3, 4]})
    path = tmp_path / "in"
    if kind is PieceKind.ROWS:
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    piece = Piece(3, kind, str(path), 0, 4, source="in.parquet" if kind is PieceKind.ROW_BLOCK else "")
    contents = read_pieces([piece], [], ReadOptions(1007, 0))
    assert texts(contents, "n") == [1, 3]
    assert [(b.file, b.offset, b.length, b.unit, b.reason) for b in contents.bad] == [
        (3, 1, 1, "rows", "larger than max_record"),
        (3, 3, 1, "rows", "larger than max_record"),
    ]
    assert contents.n_records == 4


def test_the_size_of_one_row_is_its_own(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x" * 500]}), tmp_path / "a.parquet")
    piece = Piece(0, PieceKind.ROWS, str(tmp_path / "a.parquet"), 0, 1)
    assert read_pieces([piece], [], LIMITS).largest_record == 500


def test_a_large_record_is_reported_with_where_to_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    large = b'{"a":"' + b"x" * 2_000_000 + b'"}\n'
    path.write_bytes(b'{"a":1}\n' + large + b'{"a":2}\n')
    told: list[tuple[int, int, int]] = []
    limits = ReadOptions(5_000_000, 0, on_large=lambda *what: told.append(what))
    read_pieces([Piece(0, PieceKind.BYTES, str(path), 0, 20)], [], limits)
    read_pieces([Piece(0, PieceKind.BYTES, str(path), 8, 20)], [], limits)
    read_pieces([Piece(0, PieceKind.BYTES, str(path), 8, 20), Piece(0, PieceKind.BYTES, str(path), 0, 8)], [], limits)
    assert told == [(-1, 8, len(large) - 1), (1, -1, len(large) - 1), (-1, -1, len(large) - 1)]


def test_a_large_bad_record_is_copied_and_not_held_once_more(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    bad = b"[" * 1_500_000
    path.write_bytes(b'{"a":1}\n' + bad + b"\n")
    contents = read_pieces([Piece(0, PieceKind.BYTES, str(path), 0, 2_000_000)], [], ReadOptions(5_000_000, 0))
    (entry,) = contents.bad
    assert (entry.raw, entry.copy_from) == (None, (str(path), 8, len(bad)))
    block = tmp_path / "b.block"
    block.write_bytes(bad + b"\n")
    piece = Piece(0, PieceKind.BLOCK, str(block), 100, 100 + len(bad) + 1, 100, str(path))
    (entry,) = read_pieces([piece], [], ReadOptions(5_000_000, 0)).bad
    assert (entry.offset, entry.raw, entry.copy_from) == (100, None, (str(block), 0, len(bad)))


def test_rows_that_decode_to_more_than_they_declare_say_so_before_they_fill_the_memory(tmp_path: Path) -> None:
    """A few kB of Parquet that stand for 40 MB."""
    n = 40_000
    text = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array(["x" * 1000]))
    pq.write_table(pa.table({"text": text}), tmp_path / "x.parquet", row_group_size=n)
    assert (tmp_path / "x.parquet").stat().st_size < 30_000
    for piece in (
        Piece(2, PieceKind.ROWS, str(tmp_path / "x.parquet"), 0, TO_END),
        Piece(2, PieceKind.ROWS, str(tmp_path / "x.parquet"), 10, n),
    ):
        with pytest.raises(TooLarge) as caught:
            read_pieces([piece], [], ReadOptions(1 << 30, 1 << 20))
        info = caught.value.report
        ((first, n_rows, n_bytes),) = info.groups
        assert (info.file, info.n_rows, info.whole) == (2, n, piece.end == TO_END)
        assert (first, n_rows) == (piece.start, n - piece.start)
        assert n_bytes > 2 << 20
        assert n_bytes > 100 * parquet.describe(piece.path).row_groups[0].estimated_bytes
    small = read_pieces(
        [Piece(2, PieceKind.ROWS, str(tmp_path / "x.parquet"), 5, 25)], [], ReadOptions(1 << 30, 1 << 20)
    )
    assert small.n_records == 20


@pytest.mark.parametrize("block_bytes", [2000, 1 << 20])
@pytest.mark.parametrize("declared", [1.0, 0.0])
def test_rows_that_a_reader_refuses_come_back_cut_or_fed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, declared: float
) -> None:
    """Whatever the footer declares and however small blocks are, all rows are read exactly once."""
    n, path = 12_000, tmp_path / "x.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array(["x" * 1000]))
    pq.write_table(pa.table({"text": text}), path, row_group_size=4000)
    found = parquet.describe(path)
    groups = tuple(g._replace(estimated_bytes=int(g.estimated_bytes * declared)) for g in found.row_groups)
    monkeypatch.setattr(parquet, "describe", lambda path: found._replace(row_groups=groups))
    cursor = Cursor(FileList([str(path)], [path.stat().st_size], [0]), [PieceKind.ROWS])
    read, fed, asked = [], [], []
    while (work := cursor.next(block_bytes)) is not None:
        (piece,) = work.pieces
        assert piece not in asked
        asked.append(piece)
        if work.mode is Mode.FEED:
            fed.append((piece.start, piece.end))
            continue
        try:
            read += read_pieces([piece], [], ReadOptions(1 << 30, block_bytes)).covered
        except TooLarge as exc:
            info, size = exc.report, max(block_bytes, MIN_ROWS_BYTES)
            cursor.cut_at_row_groups(0, info.groups, info.n_rows, size, piece.start, info.measured)
    spans = sorted([*fed, *((start, end) for _, start, end, _ in read)])
    assert (spans[0][0], spans[-1][1]) == (0, n)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    assert fed


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_a_file_that_the_disk_does_not_give_is_set_aside_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    if name == "x.jsonl":
        path.write_bytes(b'{"a":1}\n')
    else:
        pq.write_table(pa.table({"a": [1]}), path)

    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(reading, "read_range", broken)
    monkeypatch.setattr(parquet, "iter_rows", broken)
    size, info = path.stat().st_size, path.stat()
    kind, end = (PieceKind.BYTES, size) if name == "x.jsonl" else (PieceKind.ROWS, TO_END)
    limits = ReadOptions(1000, 0, {str(path): (size, info.st_mtime_ns)})
    contents = read_pieces([Piece(0, kind, str(path), 0, end)], [], limits)
    (bad,) = contents.bad
    assert (bad.reason, bad.lost_bytes, bad.whole_file) == ("cannot be read: Input/output error", size, True)


@pytest.mark.parametrize("writer", [JsonlWriter, ParquetWriter])
@pytest.mark.parametrize("extension", ["parquet", "arrow"])
def test_rows_of_a_file_without_any_of_the_fields_are_documents(tmp_path: Path, extension: str, writer: Any) -> None:
    (tmp_path / "in").mkdir()
    for name, column in (("a", "text"), ("b", "other")):
        table = pa.table({column: ["x", "y", "z"]})
        path = str(tmp_path / "in" / f"{name}.{extension}")
        if extension == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as out:
                out.write_table(table)
    reader = DocumentReader(str(tmp_path / "in"), fields=["text"])
    pipeline = Pipeline("x", stages=[reader, writer(str(tmp_path / "out"))])
    pipeline.run(InProcessExecutor(), memory="400MB")
    assert pipeline.last_result is not None
    ledger = pipeline.last_result.ledger
    assert (ledger.records.n, ledger.written.n) == (6, 6)
    rows = [json.loads(line) for p in (tmp_path / "out").glob("*.jsonl") for line in p.read_text().splitlines()]
    rows += [row for p in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(p).to_pylist()]
    assert sorted(str(row.get("text")) for row in rows) == ["None", "None", "None", "x", "y", "z"]
    assert {name for row in rows for name in row} == {"text"}
