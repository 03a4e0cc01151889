"""Arrow files and streams: what lies where, ranges of rows, damage, writing."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import FormatError, Incomplete
from tamis.formats import registry
from tamis.formats.arrow import format as arrow
from tamis.formats.arrow.messages import read_layout
from tamis.formats.base import RowsFault
from tamis.formats.table_files import bad_text_rows
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.support.run_dirs import run_dir_path

N = 1000
TABLE = pa.table(
    {
        "id": pa.array(range(N), pa.int64()),
        "text": pa.array([f"text {i} " * (i % 7) for i in range(N)]),
        "kind": pa.array(["a", "b", None, "c"] * (N // 4)).dictionary_encode(),
        "tags": pa.array([[str(i), "x"] for i in range(N)], pa.list_(pa.string())),
    }
)
PLAIN = TABLE.drop_columns(["kind"])


def written(path: Path, table: pa.Table, how: str) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=None if how in ("file", "stream") else how)
    new = pa.ipc.new_stream if how == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema, options=options) as out:
        out.write_table(table, max_chunksize=130)
    return path


@pytest.mark.parametrize("how", ["file", "stream", "zstd", "lz4"])
@pytest.mark.parametrize("table", [PLAIN, TABLE], ids=["plain", "dictionary"])
def test_any_range_of_rows(tmp_path: Path, how: str, table: pa.Table) -> None:
    path = str(written(tmp_path / "a.arrow", table, how))
    info = arrow.describe(path)
    assert (info.n_rows, len(info.row_groups)) == (N, 8)
    assert [name for name, _ in info.columns] == table.column_names
    for first, end in [(0, N), (0, 1), (129, 131), (500, 777), (999, 1000), (5, 5)]:
        got = list(arrow.iter_rows(path, first, end, batch_bytes=2000))
        assert [at for at, _ in got] == sorted(at for at, _ in got)
        rows = [row for _, part in got for row in part.to_pylist()]
        assert rows == table.slice(first, end - first).to_pylist()
        assert all(part.nbytes <= 2000 or len(part) == 1 for _, part in got)
    some = [part for _, part in arrow.iter_rows(path, 10, 20, ["text", "nobody", "id"])]
    assert pa.concat_tables(some).column_names == ["text", "id"]
    assert sum(len(part) for _, part in arrow.iter_rows(path, 3, 400, ["nobody"])) == 397


def test_feather_files_are_read_and_old_ones_refused_by_name(tmp_path: Path) -> None:
    pyarrow.feather.write_feather(PLAIN, str(tmp_path / "a.feather"))
    assert registry.table_format(str(tmp_path / "a.feather")).describe(str(tmp_path / "a.feather")).n_rows == N
    (tmp_path / "b.feather").write_bytes(b"FEA1" + bytes(range(200)) + b"FEA1")  # version 1
    with pytest.raises(FormatError, match=r"b\.feather: not a readable Arrow file"):
        arrow.describe(tmp_path / "b.feather")


@pytest.mark.parametrize("how", ["file", "stream"])
def test_files_that_were_cut_off_are_refused(tmp_path: Path, how: str) -> None:
    path = written(tmp_path / "a.arrow", PLAIN, how)
    data = path.read_bytes()
    for n in (0, 3, 9, 100, len(data) // 2, len(data) - 20):
        path.write_bytes(data[:n])
        if how == "stream" and n == 0:
            continue
        with pytest.raises(FormatError, match="not a readable Arrow file"):
            arrow.describe(path)


@pytest.mark.parametrize("how", ["file", "stream", "zstd"])
def test_damage_is_a_fault_of_some_rows_or_a_refusal_never_a_crash(tmp_path: Path, how: str) -> None:
    """Any bytes, anywhere: rows come out, or an error that names the place; nothing is followed out of the file."""
    good = written(tmp_path / "good.arrow", PLAIN, how).read_bytes()
    path = tmp_path / "bad.arrow"
    chance, n_refused = random.Random(1), 0
    places: list[tuple[int, int, int]] = []
    for _ in range(150):
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            n_rows = arrow.describe(path).n_rows
            for _ in arrow.iter_rows(path, 0, n_rows):
                pass
        except RowsFault as fault:
            places.append((fault.row, fault.next_row, n_rows))
        except (FormatError, MemoryError):
            n_refused += 1
    assert len(places) + n_refused > 20
    assert all(0 <= row < after <= n for row, after, n in places)


def test_what_is_written_is_read_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with arrow.TableWriter(tmp_path / f"{name}.arrow", PLAIN.schema, group_bytes=10_000) as out:
            out.write(PLAIN.slice(0, 300))
            out.write(PLAIN.slice(300))
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()
    assert pyarrow.feather.read_table(str(tmp_path / "a.arrow")).equals(PLAIN)
    assert len(read_layout(str(tmp_path / "a.arrow")).batches) == 3
    out = arrow.TableWriter(tmp_path / "c.arrow", PLAIN.schema)
    out.write(PLAIN)
    out.abort()
    with pytest.raises(FormatError):
        arrow.describe(tmp_path / "c.arrow")


def texts_of(*values: bytes) -> pa.Array:
    """Texts of any bytes, which nobody has looked at."""
    return pa.array(values, pa.binary()).view(pa.string())


BAD = texts_of(b"a", b"\xff", b"b")
HOLDING_BAD = {
    "text": BAD,
    "large": pa.array([b"a", b"\xff", b"b"], pa.large_binary()).view(pa.large_string()),
    "view": pa.array([b"a", b"\xff", b"b"], pa.binary_view()).view(pa.string_view()),
    "list": pa.ListArray.from_arrays([0, 1, 2, 3], BAD),
    "large list": pa.LargeListArray.from_arrays([0, 1, 2, 3], BAD),
    "fixed list": pa.FixedSizeListArray.from_arrays(BAD, 1),
    "list view": pa.ListViewArray.from_arrays([0, 1, 2], [1, 1, 1], BAD),
    "struct": pa.StructArray.from_arrays([BAD], ["a"]),
    "dictionary": pa.DictionaryArray.from_arrays([0, 1, 2], BAD, safe=False),
    "list of a dictionary": pa.ListArray.from_arrays(
        [0, 1, 2, 3], pa.DictionaryArray.from_arrays([0, 1, 2], BAD, safe=False)
    ),
    "runs": pa.array([b"a", b"\xff", b"b"], pa.run_end_encoded(pa.int32(), pa.binary())).view(
        pa.run_end_encoded(pa.int32(), pa.string())
    ),
}


@pytest.mark.parametrize("what", HOLDING_BAD)
def test_a_text_that_is_no_utf8_is_its_rows_fault_alone(tmp_path: Path, what: str) -> None:
    table = pa.table({"id": [1, 2, 3], "x": HOLDING_BAD[what]})
    path = str(written(tmp_path / "a.arrow", table, "file"))
    ((first, found),) = arrow.iter_rows(path, 0, 3)
    rows, reasons = bad_text_rows(found)
    assert (first, rows.tolist(), reasons) == (0, [1], ["field 'x' is not valid UTF-8"])
    assert found.filter(pa.array([True, False, True]))["id"].to_pylist() == [1, 3]


def test_offsets_that_lie_elsewhere_are_a_fault_also_next_to_a_text_that_is_no_utf8(tmp_path: Path) -> None:
    damaged = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 900, 2], pa.int32()).buffers()[1], pa.py_buffer(b"ab")]
    )
    table = pa.table({"x": texts_of(b"a", b"\xff"), "y": damaged})
    path = str(written(tmp_path / "a.arrow", table, "file"))
    with pytest.raises(RowsFault):
        list(arrow.iter_rows(path, 0, 2))


def test_runs_and_list_views_are_read_as_what_they_hold(tmp_path: Path) -> None:
    words = ["a", "a", None, "b"]
    lists = [["x", "y"], None, [], ["z"]]
    table = pa.table(
        {
            "runs": pa.array(words, pa.run_end_encoded(pa.int16(), pa.string())),
            "numbers": pa.array([7, 7, 7, 8], pa.run_end_encoded(pa.int32(), pa.int8())),
            "views": pa.array(lists, pa.list_view(pa.string_view())),
            "large": pa.array(lists, pa.large_list_view(pa.string())),
            "inside": pa.array([{"a": v} for v in lists], pa.struct([("a", pa.list_view(pa.string()))])),
        }
    )
    path = str(written(tmp_path / "a.arrow", table, "file"))
    for first, end in ((0, 4), (1, 3), (3, 4)):
        ((_, found),) = arrow.iter_rows(path, first, end)
        assert found.to_pylist() == table.slice(first, end - first).to_pylist()
        found.validate(full=True)
    assert found.schema.types == [
        pa.large_string(),
        pa.int8(),
        pa.list_(pa.large_string()),
        pa.large_list(pa.string()),
        pa.struct([("a", pa.list_(pa.string()))]),
    ]
    Pipeline("copy", stages=[DocumentReader(path), JsonlWriter(str(tmp_path / "out"))]).run(InProcessExecutor())
    (made,) = (tmp_path / "out").glob("*.jsonl")
    assert [json.loads(line) for line in made.read_text().splitlines()] == table.to_pylist()


def overwritten(path: Path, at: int, value: int) -> Path:
    data = bytearray(path.read_bytes())
    struct.pack_into("<q", data, at, value)
    path.write_bytes(data)
    return path


HUGE = 835_868 * 10**12


@pytest.mark.parametrize("how", ["zstd", "lz4"])
def test_a_claimed_size_that_cannot_be_true_is_damage_and_no_want_of_memory(tmp_path: Path, how: str) -> None:
    path = written(tmp_path / "a.arrow", PLAIN, how)
    batch = read_layout(str(path), with_buffers=True).batches[2]
    for at, n_bytes in batch.buffers:
        if n_bytes:  # a compressed buffer begins with its decoded size
            damaged = overwritten(written(tmp_path / "b.arrow", PLAIN, how), at, HUGE)
            assert sum(len(part) for _, part in arrow.iter_rows(damaged, 0, 260)) == 260
            with pytest.raises(RowsFault, match=rf"claims to hold {HUGE} bytes") as caught:
                list(arrow.iter_rows(damaged, 0, N))
            assert (caught.value.row, caught.value.next_row) == (260, 390)


def test_a_damaged_size_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "c"):
        path = written(tmp_path / "in" / f"{name}.arrow", PLAIN, "zstd")
    batch = read_layout(str(path), with_buffers=True).batches[0]
    overwritten(tmp_path / "in" / "b.arrow", next(at for at, n in batch.buffers if n), HUGE)
    pipeline = Pipeline("copy", stages=[DocumentReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(Incomplete):
        pipeline.run(memory="400MB", workers=1)
    result = pipeline.last_result
    assert result is not None
    assert (result.ledger.written.n, result.ledger.quarantined.n) == (2 * N + N - 130, 130)
    (told,) = [
        line for p in (run_dir_path(tmp_path / "out") / "quarantine").iterdir() for line in p.read_text().splitlines()
    ][:1]
    assert "b.arrow" in told
    assert "claims to hold" in told


def message_starts(path: Path) -> list[int]:
    return [b.offset for b in read_layout(str(path)).batches]


@pytest.mark.parametrize("how", ["file", "stream"])
def test_rows_that_a_header_hides_are_missed(tmp_path: Path, how: str) -> None:
    """A record batch that says that it has no rows, or is no record batch, is not passed over."""
    data = written(tmp_path / "a.arrow", PLAIN, how).read_bytes()
    at = message_starts(tmp_path / "a.arrow")[-1]
    (length,) = struct.unpack_from("<i", data, at + 4)
    hidden = 0
    for position in range(at, at + 8 + length):
        for bit in {0, position % 8}:
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            (tmp_path / "b.arrow").write_bytes(changed)
            try:
                n_rows = arrow.describe(tmp_path / "b.arrow").n_rows
                rows = sum(len(part) for _, part in arrow.iter_rows(tmp_path / "b.arrow", 0, n_rows))
            except (FormatError, RowsFault):
                continue
            hidden += rows != N
    assert hidden == 0


def test_a_footer_lists_every_record_batch_once(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", PLAIN, "file")
    data, starts = path.read_bytes(), message_starts(path)
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = len(data) - 10 - length
    blocks = data.index(struct.pack("<q", starts[0]), footer)
    fewer = bytearray(data)
    struct.pack_into("<I", fewer, blocks - 4, len(starts) - 1)
    path.write_bytes(fewer)
    with pytest.raises(FormatError, match=rf"its footer leaves out the record batch at byte {starts[-1]}"):
        arrow.describe(path)
    twice = bytearray(data)
    struct.pack_into("<q", twice, blocks + 24, starts[0])
    path.write_bytes(twice)
    with pytest.raises(FormatError, match="lists it twice"):
        arrow.describe(path)


def test_what_follows_the_end_of_a_stream_is_not_lost(tmp_path: Path) -> None:
    path = written(tmp_path / "a.arrow", PLAIN, "stream")
    data = path.read_bytes()
    path.write_bytes(data + b"\0" * 100)
    assert arrow.describe(path).n_rows == N
    path.write_bytes(data + data)
    with pytest.raises(FormatError, match="end mark"):
        arrow.describe(path)


@pytest.mark.parametrize("how", ["file", "stream"])
def test_columns_that_a_schema_hides_are_missed(tmp_path: Path, how: str) -> None:
    data = written(tmp_path / "a.arrow", PLAIN, how).read_bytes()
    end = read_layout(str(tmp_path / "a.arrow")).schema_end
    n_unnoticed = 0
    for position in range(8 if how == "file" else 0, end):
        changed = bytearray(data)
        changed[position] ^= 1 << position % 8
        (tmp_path / "b.arrow").write_bytes(changed)
        try:
            n_unnoticed += len(arrow.read_schema(tmp_path / "b.arrow")) != len(PLAIN.schema)
        except FormatError:
            continue
    assert n_unnoticed == 0


def test_columns_inside_of_columns_are_counted(tmp_path: Path) -> None:
    kinds = [
        pa.null(),
        pa.struct([("x", pa.list_(pa.string())), ("y", pa.struct([]))]),
        pa.map_(pa.string(), pa.int8()),
        pa.list_(pa.float32(), 3),
        pa.list_view(pa.int64()),
        pa.dictionary(pa.int8(), pa.list_(pa.string())),
        pa.string_view(),
        pa.uuid(),
        pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string())]),
    ]
    table = pa.table({f"c{i}": pa.nulls(4, kind) for i, kind in enumerate(kinds)})
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([4], pa.int32()), pa.array(["x"]))
    table = table.append_column("runs", runs)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as out:
        out.write_table(table)
    info = arrow.describe(tmp_path / "a.arrow")
    assert (info.n_rows, len(info.columns)) == (4, len(kinds) + 1)
