"""Arrays in files, read by range, and where an Arrow file keeps its columns: never a mapping."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tamis
from tamis.errors import FormatError, StoreError
from tamis.formats.arrow.column_places import batches_of
from tamis.formats.scratch.stored_arrays import NpyWriter, StoredArray, open_npy, read_into


def written(path: Path, values: np.ndarray) -> StoredArray:
    with NpyWriter(str(path), values.dtype.str) as writer:
        writer.append(values[:3])
        writer.append(values[3:])
    return open_npy(str(path))


def test_what_was_written_in_pieces_is_read_by_range_and_by_numpy(tmp_path: Path) -> None:
    values = np.arange(0, 200_000, 2, dtype=np.int64)
    stored = written(tmp_path / "a.npy", values)
    assert (len(stored), stored.kind) == (100_000, np.int64)
    assert np.array_equal(np.load(tmp_path / "a.npy"), values)
    assert stored.read(5, 8).tolist() == [10, 12, 14]
    assert stored.read(99_999, 100_005).tolist() == [199_998]
    assert stored.read(200_000, 300_000).tolist() == []
    assert [int(stored[i]) for i in (0, 4096, 99_999)] == [0, 8192, 199_998]
    with pytest.raises(IndexError):
        stored[100_000]


def test_a_search_finds_what_numpy_finds(tmp_path: Path) -> None:
    values = np.sort(np.random.default_rng(0).integers(0, 50_000, 100_000)).astype(np.uint64)
    stored = written(tmp_path / "a.npy", values)
    for value in [0, 1, 25_000, 49_999, 50_000, 2**64 - 1]:
        assert stored.search(value) == np.searchsorted(values, np.uint64(value))
        assert stored.search(value, right=True) == np.searchsorted(values, np.uint64(value), side="right")
        assert stored.search(value, 500, 700) == 500 + np.searchsorted(values[500:700], np.uint64(value))
    assert len(stored._blocks) <= 32  # however many were looked at


def test_an_empty_array_and_rows_of_several_fields(tmp_path: Path) -> None:
    assert written(tmp_path / "a.npy", np.empty(0, np.int32)).read(0, 5).tolist() == []
    rows = np.array([(1, 5), (1, 9), (2, 0)], [("file", "<i4"), ("offset", "<i8")])
    np.save(tmp_path / "b.npy", rows)
    assert open_npy(str(tmp_path / "b.npy")).search((1, 9), key=lambda row: (int(row["file"]), int(row["offset"]))) == 1


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"no such thing at all"])
def test_a_damaged_column_is_said_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(FormatError, match=r"a\.npy: not a column of a table"):
        open_npy(str(tmp_path / "a.npy"))


def test_a_column_that_ends_early_is_said_by_name(tmp_path: Path) -> None:
    stored = written(tmp_path / "a.npy", np.arange(1000))
    os.truncate(tmp_path / "a.npy", 500)
    with pytest.raises(FormatError, match=r"a\.npy: ends early"):
        stored.read(0, 1000)


def arrow_file(path: Path, compression: str | None = None) -> list[pa.RecordBatch]:
    batches = [
        pa.record_batch(
            {
                "number": pa.array(range(n), pa.int32()),
                "key": pa.array([b"12345678"] * n, pa.binary(8)),
                "text": pa.array([None if i % 3 == 2 else "x" * i for i in range(n)], pa.large_string()),
                "last": pa.array([i * 0.5 for i in range(n)], pa.float64()),
            }
        )
        for n in (5, 0, 70)
    ]
    with pa.ipc.new_file(path, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return batches


def test_columns_of_an_arrow_file_lie_where_arrow_finds_them(tmp_path: Path) -> None:
    first, _, last = arrow_file(tmp_path / "a.arrow")
    found = batches_of(str(tmp_path / "a.arrow"))
    assert [batch.n_rows for batch in found] == [5, 70]
    for batch, places in zip((first, last), found, strict=True):
        for name in ("number", "last"):
            assert places.values(name).read(0, 100).tolist() == batch.column(name).to_pylist()
        assert places.values("key").read(0, 1).tobytes() == b"12345678"
        ends = places.ends("text").read(0, 100)
        assert np.diff(ends).tolist() == [len(text or "") for text in batch.column("text").to_pylist()]
        data = np.empty(int(ends[-1]), np.uint8)
        read_into(str(tmp_path / "a.arrow"), places.data_at("text"), data)
        assert set(data.tolist()) == {ord("x")}


def test_what_is_no_arrow_file_or_damaged_is_said_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    arrow_file(path)
    whole = path.read_bytes()
    for content in (b"", b"ARROW1", whole[:-20], whole[:100] + whole[300:]):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"a\.arrow"):
            batches_of(str(path))
    arrow_file(path, compression="zstd")
    with pytest.raises(FormatError, match="compressed"):
        batches_of(str(path))


def test_any_flipped_byte_gives_places_in_the_file_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    arrow_file(path)
    whole = path.read_bytes()
    chance = np.random.default_rng(1)
    for at in chance.integers(0, len(whole), 300).tolist():
        path.write_bytes(whole[:at] + bytes([int(chance.integers(256))]) + whole[at + 1 :])
        try:
            found = batches_of(str(path))
        except FormatError:
            continue
        for batch in found:
            for buffers in batch.buffers.values():
                assert all(place >= 0 and place + n <= len(whole) for place, n in buffers)


def test_nothing_of_ours_maps_data() -> None:
    """A mapping counts in full against a worker's cap: columns and records are read by range."""
    maps = ("mmap_mode", "memory_map(", "np.memmap")
    root = Path(tamis.__file__).parent
    found = {str(p.relative_to(root)) for p in root.rglob("*.py") if any(word in p.read_text() for word in maps)}
    # One model, one table of URLs, one filter of n-grams for all workers.
    assert found <= {"kernels/text/fasttext_file.py", "stages/text/urls/lists.py", "dedup/contamination/index.py"}


@pytest.mark.parametrize(
    "error", [StoreError("s3://b/a.arrow: no answer"), pa.ArrowMemoryError("malloc of size 64 failed")]
)
def test_a_store_that_does_not_answer_and_memory_that_is_short_make_no_damaged_file(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(path: str) -> None:
        raise error

    monkeypatch.setattr("tamis.formats.arrow.column_places.open_arrow", opened)
    with pytest.raises((StoreError, MemoryError), match=r"no answer|malloc"):
        batches_of("s3://b/a.arrow")
