"""Keys read by parts: a small part reads only where its keys should lie, and finds what the whole column holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.dedup import records as module
from tamis.dedup.keys import NO_ROW
from tamis.dedup.records import Records, parts_of
from tamis.engine.worker.write import _with_same_columns

N = 4000


def written(path: Path, keys: Any, n_without: int) -> Records:
    """One record batch: sorted keys, those of the documents without one last."""
    order = np.argsort(keys[: N - n_without], kind="stable")
    key = np.concatenate([keys[: N - n_without][order], np.zeros(n_without, np.uint64)])
    row = np.concatenate([order.astype(np.uint32), np.full(n_without, NO_ROW, np.uint32)])
    columns = {"file": np.zeros(N, np.int32), "offset": np.arange(N, dtype=np.int64), "key_0": key, "row_0": row}
    batch = pa.record_batch({name: pa.array(values) for name, values in columns.items()})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return Records([str(path)])


@pytest.mark.parametrize("kind", ["even", "uneven", "few keys", "without"])
def test_parts_of_keys_are_read_where_they_lie(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 1 << 64, N, np.uint64)
    if kind == "uneven":
        keys >>= np.uint64(9)
    elif kind == "few keys":
        keys = keys[rng.integers(0, 5, N)]
    records = written(tmp_path / "r.arrow", keys, 3000 if kind == "without" else 0)
    n_read: list[int] = []
    read_keys = module._read_keys
    monkeypatch.setattr(
        module, "_read_keys", lambda run, k, first, last: n_read.append(last - first) or read_keys(run, k, first, last)
    )
    whole_keys, whole_numbers = records.keys(0)
    n_read.clear()
    found = [records.keys(0, part) for part in parts_of(100, 1)]
    assert np.concatenate([k for k, _ in found]).tolist() == whole_keys.tolist()
    assert np.concatenate([n for _, n in found]).tolist() == whole_numbers.tolist()
    assert len(whole_keys) == (1000 if kind == "without" else N)
    assert (max(n_read) < N) is (kind == "even")


def test_batches_of_one_file_have_the_same_columns() -> None:
    plain = pa.table({"file": [0], "offset": [5]})
    vectors = pa.table({"file": [0], "offset": [6], "vector": pa.array([b"abcd"], pa.binary(4))})
    known = pa.table({"file": [1], "offset": [0], "record_bytes": [7]})
    assert _with_same_columns([plain, plain]) == [plain, plain]
    made = _with_same_columns([plain, vectors, known])
    assert [t.to_pylist() for t in made] == [
        [{"file": 0, "offset": 5, "vector": None}],
        [{"file": 0, "offset": 6, "vector": b"abcd"}],
        [{"file": 1, "offset": 0, "vector": None}],
    ]
    assert {t.schema for t in made} == {vectors.schema}
