"""Files of token ids: what trainers read from each format is what was written."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.errors import FormatError
from tamis.formats.compression.zstd import ZstdFile
from tamis.formats.megatron.index import read_index
from tamis.formats.tokens import mds
from tamis.formats.tokens.files import FORMATS, Rows, open_file

DOCUMENTS = [[5, 6, 7], [], [60_000, 1], list(range(300))]
SEQUENCES = Rows(
    np.array([1, 2, 3, 4, 5, 6, 7, 8], np.uint16), np.array([0, 4, 8]), np.array([0, 2, 0]), np.array([0, 2, 3])
)


def documents(lists: list[list[int]], dtype: str = "uint16") -> Rows:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    return Rows(np.array([i for one in lists for i in one], dtype), offsets)


def write(folder: Path, kind: str, *parts: Rows, length: int | None = None, dtype: str = "uint16") -> list[Path]:
    file = open_file(kind, str(folder / "x"), np.dtype(dtype), length)
    for rows in parts:
        file.write(rows)
    return [Path(path) for _, path in file.close()]


def split(ids: Any, offsets: Any) -> list[list[int]]:
    return [ids[a:b].tolist() for a, b in pairwise(offsets)]


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_megatron(tmp_path: Path, dtype: str) -> None:
    tokens, index = write(
        tmp_path, "megatron", documents(DOCUMENTS[:2], dtype), documents(DOCUMENTS[2:], dtype), dtype=dtype
    )
    lengths, marks, kind = read_index(index)
    assert (lengths.tolist(), marks.tolist(), kind) == ([3, 0, 2, 300], [0, 1, 2, 3, 4], dtype)
    ids = np.fromfile(tokens, np.dtype(dtype))
    assert split(ids, np.concatenate([[0], np.cumsum(lengths)])) == DOCUMENTS


@pytest.mark.parametrize("kind", ["npy", "raw"])
def test_flat_arrays(tmp_path: Path, kind: str) -> None:
    tokens, offsets = write(tmp_path, kind, documents(DOCUMENTS[:2]), documents(DOCUMENTS[2:]))
    ids = np.load(tokens, mmap_mode="r") if kind == "npy" else np.memmap(tokens, np.uint16, "r")
    assert split(ids, np.load(offsets)) == DOCUMENTS
    assert (tokens.suffix, offsets.suffix) == ({"npy": ".npy", "raw": ".bin"}[kind], ".offsets")


def test_sequences_in_flat_arrays(tmp_path: Path) -> None:
    tokens, offsets = write(tmp_path, "npy", SEQUENCES, length=4)
    assert np.load(tokens, mmap_mode="r").tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert np.load(offsets).tolist() == [0, 2, 4, 8]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_columns(tmp_path: Path, kind: str) -> None:
    def table(path: Path) -> pa.Table:
        return pq.read_table(path) if kind == "parquet" else pa.ipc.open_file(path.read_bytes()).read_all()

    (path,) = write(tmp_path, kind, documents(DOCUMENTS))
    assert table(path).to_pydict() == {"input_ids": DOCUMENTS}
    (path,) = write(tmp_path / "..", kind, SEQUENCES, length=4)
    assert table(path).to_pydict() == {"input_ids": [[1, 2, 3, 4], [5, 6, 7, 8]], "document_starts": [[0, 2], [0]]}
    path.unlink()


def samples(path: Path, columns: list[tuple[str, np.dtype[Any], int | None]]) -> list[dict[str, list[int]]]:
    """Read a shard of MDS as its format is described, column by column."""
    with ZstdFile(path) as file:
        data = file.read()
    (n,) = struct.unpack_from("<I", data)
    ends = np.frombuffer(data, "<u4", n + 1, 4)
    found = []
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        p, sizes, sample = begin, [], {}
        for _, _, size in columns:
            if size is None:
                sizes.append(struct.unpack_from("<I", data, p)[0])
                p += 4
            else:
                sizes.append(size)
        for (name, dtype, size), n_bytes in zip(columns, sizes, strict=True):
            own = data[p : p + n_bytes]
            if size is None:
                width = 1 << (own[0] & 3)
                assert own[0] >> 2 == 1
                shape = int.from_bytes(own[1 : 1 + width], "little")
                own = own[1 + width :]
                assert len(own) == shape * dtype.itemsize
            sample[name] = np.frombuffer(own, dtype).tolist()
            p += n_bytes
        assert p == end
        found.append(sample)
    return found


def test_mds(tmp_path: Path) -> None:
    (path,) = write(tmp_path, "mds", documents(DOCUMENTS[:2]), documents(DOCUMENTS[2:]))
    kinds = [("input_ids", np.dtype("<u2"), None)]
    assert samples(path, kinds) == [{"input_ids": one} for one in DOCUMENTS if one]
    index = json.loads(mds.index_of([("train-0.mds.zstd", str(path))]))
    (shard,) = index["shards"]
    with ZstdFile(path) as file:
        n_bytes = len(file.read())
    assert (index["version"], shard["samples"], shard["format"], shard["compression"]) == (2, 3, "mds", "zstd")
    assert shard["raw_data"] == {"basename": "train-0.mds", "bytes": n_bytes, "hashes": {}}
    assert shard["zip_data"] == {"basename": "train-0.mds.zstd", "bytes": path.stat().st_size, "hashes": {}}
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(FormatError, match="no shard of MDS"):
        mds.index_of([("a", str(path))])


def test_mds_as_it_is(tmp_path: Path) -> None:
    (zipped,) = write(tmp_path, "mds", documents(DOCUMENTS))
    file = open_file("mds", str(tmp_path / "plain"), np.dtype("uint16"), None, is_compressed=False)
    file.write(documents(DOCUMENTS))
    ((extension, path),) = file.close()
    data = Path(path).read_bytes()
    with ZstdFile(zipped) as compressed:  # they differ in the settings that they name
        assert compressed.read().replace(b'"zstd"', b"null")[-400:] == data[-400:]
    (shard,) = json.loads(mds.index_of([("train-0.mds", path)]))["shards"]
    assert (extension, Path(path).name) == ("mds", "plain.mds")
    assert (shard["samples"], shard["compression"], shard["zip_data"]) == (3, None, None)
    assert shard["raw_data"] == {"basename": "train-0.mds", "bytes": len(data), "hashes": {}}
    Path(path).write_bytes(data[:9])
    with pytest.raises(FormatError, match="no shard of MDS"):
        mds.index_of([("train-0.mds", path)])


def test_mds_of_sequences(tmp_path: Path) -> None:
    (path,) = write(tmp_path, "mds", SEQUENCES, length=4)
    kinds = [("document_starts", np.dtype("<i4"), None), ("input_ids", np.dtype("<u2"), 8)]
    assert samples(path, kinds) == [
        {"document_starts": [0, 2], "input_ids": [1, 2, 3, 4]},
        {"document_starts": [0], "input_ids": [5, 6, 7, 8]},
    ]
    (shard,) = json.loads(mds.index_of([("a.mds.zstd", str(path))]))["shards"]
    assert shard["column_names"] == ["document_starts", "input_ids"]
    assert shard["column_encodings"] == ["ndarray:int32", "ndarray:uint16:4"]
    assert shard["column_sizes"] == [None, 8]


def test_the_reader_of_mosaicml(tmp_path: Path) -> None:
    streaming = pytest.importorskip("streaming", reason="mosaicml-streaming needs an environment of its own")
    (path,) = write(tmp_path, "mds", SEQUENCES, length=4)
    path.rename(tmp_path / "a.mds.zstd")
    (tmp_path / "index.json").write_text(mds.index_of([("a.mds.zstd", str(tmp_path / "a.mds.zstd"))]))
    dataset = streaming.StreamingDataset(local=str(tmp_path), shuffle=False, batch_size=1)
    assert [row["input_ids"].tolist() for row in dataset] == [[1, 2, 3, 4], [5, 6, 7, 8]]


@pytest.mark.parametrize("kind", FORMATS)
def test_how_rows_are_passed_makes_no_difference(tmp_path: Path, kind: str) -> None:
    lists = [list(range(k % 97)) for k in range(500)]
    whole, parts = tmp_path / "a", tmp_path / "b"
    for folder in (whole, parts):
        folder.mkdir()
    write(whole, kind, documents(lists))
    write(parts, kind, *(documents(lists[k : k + 7]) for k in range(0, 500, 7)))
    for path in whole.iterdir():
        if kind == "parquet":
            assert pq.read_table(path).equals(pq.read_table(parts / path.name))
        elif kind != "arrow":
            assert path.read_bytes() == (parts / path.name).read_bytes()
