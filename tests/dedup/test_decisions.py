"""Decisions on disk: added in any order, read back by document, whatever the room."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tamis.dedup.decisions import DecisionFiles, position_ids
from tamis.dedup.position_table import PositionTable, rows_of_table


@pytest.mark.parametrize("room_bytes", [1_000_000, 500, 100])
def test_decisions_come_back_by_document(tmp_path: Path, room_bytes: int) -> None:
    found = DecisionFiles(str(tmp_path / "found"), 20, room_bytes)
    found.add([9, 3], [1, 1], [1.0, 0.5], [3, 3])
    found.add(np.array([17, 0], np.uint32), [2, 5], [0.9, 0.8], [2, 2])
    assert len(found) == 4
    parts = list(found)
    assert (len(parts) > 1) == (room_bytes < 1000)
    rows = [
        (int(n), int(k), round(float(s), 3), int(z))
        for p in parts
        for n, k, s, z in zip(p.number, p.kept, p.similarity, p.size, strict=True)
    ]
    assert rows == [(0, 5, 0.8, 2), (3, 1, 0.5, 3), (9, 1, 1.0, 3), (17, 2, 0.9, 2)]
    again = DecisionFiles(str(tmp_path / "found"), 20, room_bytes, fresh=False)
    assert sorted(int(n) for part in again.numbers() for n in part) == [0, 3, 9, 17]
    assert len(DecisionFiles(str(tmp_path / "found"), 20, room_bytes)) == 0


def test_places_are_found_by_file_and_range(tmp_path: Path) -> None:
    table = PositionTable(str(tmp_path), {"file": "<i4", "offset": "<i8", "more": "<f4"})
    table.add(file=np.array([0, 0, 2]), offset=np.array([10, 40, 0]), more=np.array([0.5, 0.25, 1]))
    table.add(file=np.array([2]), offset=np.array([70]), more=np.array([2.0]))
    table.close()
    rows, (more,) = rows_of_table(str(tmp_path), 0, np.array([0, 10, 20, 40]), ["more"])
    assert (rows.tolist(), more.tolist()) == ([1, 3], [0.5, 0.25])
    assert rows_of_table(str(tmp_path), 2, np.array([70]), ["more"])[1][0].tolist() == [2.0]
    for file in (-1, 1, 3, 99):
        assert rows_of_table(str(tmp_path), file, np.array([0, 10, 40, 70]), [])[0].tolist() == []


def test_a_table_of_nothing(tmp_path: Path) -> None:
    PositionTable(str(tmp_path), {"file": "<i4", "offset": "<i8"}).close()
    assert rows_of_table(str(tmp_path), 0, np.array([0]), [])[0].tolist() == []


def test_ids_are_those_of_add_id() -> None:
    assert position_ids([0, 1234567], [5, 0]).to_pylist() == ["000000_5", "1234567_0"]
