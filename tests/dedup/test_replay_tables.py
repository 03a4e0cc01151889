"""What an earlier pass dropped, told again from its table."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tamis.dedup.replay_tables.stages import ReplayDrops
from tamis.dedup.replay_tables.tables import write_remembered
from tamis.errors import FormatError
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.parquet import format as parquet
from tamis.tasks import DocumentBatch


def remembered(folder: Path) -> tuple[ReplayDrops, DocumentBatch]:
    """Of three documents the second and the third were dropped by `short`."""
    lines = [b'{"id":"d%d","text":"x"}' % i for i in range(3)]
    block = JsonlBlock.parse(np.frombuffer(b"\n".join([*lines, b""]), np.uint8))
    block.places = np.zeros(3, np.int32), block.start
    verdicts = folder / "run" / "verdicts"
    verdicts.mkdir(parents=True)
    (folder / "run" / "quarantine").mkdir()
    told = {
        "file": pa.array([0, 0], pa.int32()),
        "offset": pa.array(block.start[1:]),
        "id": ["d1", None],
        "stage": ["short"] * 2,
        "rule": ["length"] * 2,
        "value": ["7", "größer"],
        "threshold": ["9"] * 2,
        "bytes": pa.array([22, 22], pa.uint32()),
    }
    parquet.write_table(pa.table(told), str(verdicts / "0.parquet"))
    assert write_remembered(str(folder / "run"), ["short"], str(folder / "told"), []).dropped["short"] == 2
    stage = ReplayDrops(str(folder / "told" / "0"), name="short")
    stage.setup()
    return stage, DocumentBatch.over(block, np.arange(3))


def test_values_and_ids_are_reported_again(tmp_path: Path) -> None:
    stage, batch = remembered(tmp_path)
    rows, (at, size, ids) = stage.listed(batch, "value_at", "value_bytes", "id_bytes")
    assert rows.tolist() == [1, 2]
    assert stage._values_and_ids(at, size, ids) == (["7", "größer"], ["d1", None])


def test_a_table_that_was_cut_off_is_an_error_and_not_another_value(tmp_path: Path) -> None:
    stage, batch = remembered(tmp_path)
    path = os.path.join(stage.table, "values.bin")
    os.truncate(path, os.path.getsize(path) - 3)
    _, columns = stage.listed(batch, "value_at", "value_bytes", "id_bytes")
    with pytest.raises(FormatError, match=r"values\.bin: ends early; start over"):
        stage._values_and_ids(columns[0], columns[1], columns[2])
