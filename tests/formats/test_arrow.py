"""Arrow files and streams: what lies where, ranges of rows, damage, writing."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pytest

from tamis.errors import FormatError
from tamis.formats import registry
from tamis.formats.arrow import format as arrow
from tamis.formats.arrow.messages import read_layout
from tamis.formats.base import RowsFault

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
