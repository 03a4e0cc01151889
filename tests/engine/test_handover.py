"""Batches between segments come back with everything that lineage needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.engine.units import TO_END
from tamis.engine.worker.apply import identify
from tamis.engine.worker.handover import load, save
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.formats.table_block import TableBlock
from tamis.tasks import DocumentBatch

RECORDS = [b' {"a": 1, "t":"x\\u00e9"} ', b"{}", b'{"t":null,"b":[1, 2]}', b"{ }", b'{"a":1.50,"c":{"d":"e"}}']


def jsonl(records: list[bytes] = RECORDS) -> DocumentBatch:
    block = JsonlBlock.parse(np.frombuffer(b"".join(r + b"\r\n" for r in records), np.uint8))
    return identified(DocumentBatch.over(block, np.arange(block.n_rows), "set"))


def table() -> DocumentBatch:
    origin = TableBlock(
        pa.table({"a": [1, None, 3], "t": ["x", "y", None], "f": pa.array([0.5, 1.5, 2.5], pa.float32())})
    )
    return identified(DocumentBatch.over(origin, np.arange(3), "set"))


def identified(batch: DocumentBatch) -> DocumentBatch:
    identify(batch)
    return batch


def lines(batch: DocumentBatch) -> bytes:
    return encode_jsonl(batch).data.tobytes()


def trip(folder: Path, batches: list[DocumentBatch], rows: tuple[int, int] = (0, TO_END)) -> list[DocumentBatch]:
    path = str(folder / "h.arrow")
    about = save(batches, path)
    assert about.rows == sum(b.num_items for b in batches)
    tasks, contents = load(path, rows)
    assert tasks == contents.batches
    return contents.batches


def same(back: DocumentBatch, batch: DocumentBatch) -> None:
    assert back.dataset_name == batch.dataset_name
    assert set(back.get_columns()) <= set(batch.get_columns())  # fields that no row of the trip has are all null
    assert lines(back) == lines(batch)
    for name in batch.get_columns():
        assert back.column(name).to_pylist() == batch.column(name).to_pylist()
    assert back._identity is not None
    assert batch._identity is not None
    assert [x.tolist() for x in back._identity] == [x.tolist() for x in batch._identity]


def test_untouched_records_keep_their_bytes(tmp_path: Path) -> None:
    (back,) = trip(tmp_path, [jsonl()])
    assert lines(back) == b"".join(r + b"\n" for r in RECORDS)
    same(back, jsonl())


def test_hidden_only_and_added_columns(tmp_path: Path) -> None:
    for batch in (jsonl(), table()):
        n = batch.num_items
        added = batch.with_column("k", list(range(n))).with_column("t", [f"new{i}" for i in range(n)])
        for changed in (
            added,
            added.drop_columns(["a"]),
            added.select(["t", "k"]),
            batch.select(["a"]),
            added.drop_columns(["k", "t"]),
        ):
            (back,) = trip(tmp_path, [changed])
            same(back, changed)


def test_a_changed_column_of_a_table_keeps_its_place(tmp_path: Path) -> None:
    (back,) = trip(tmp_path, [table().with_column("a", [7, 8, 9])])
    assert back.get_columns() == ["a", "t", "f"]
    assert str(back.column("f").type) == "float"


def with_new_rows(batch: DocumentBatch, rows: list[int]) -> DocumentBatch:
    made = batch.with_column("k", list(range(batch.num_items))).take(np.maximum(rows, 0))
    made._rows = np.array(rows, np.int64)
    made._cache = {}
    return made


def test_rows_without_a_record(tmp_path: Path) -> None:
    for batch in (jsonl(), table()):
        for rows in ([-1, 2, -1, 0, 1, 1, -1], [-1], [0, -1]):
            made = with_new_rows(batch, rows)
            (back,) = trip(tmp_path, [made])
            same(back, made)
            assert (back._rows < 0).tolist() == [r < 0 for r in rows]


def test_a_second_trip_changes_nothing(tmp_path: Path) -> None:
    for batch in (with_new_rows(jsonl(), [-1, 2, 0]), with_new_rows(table(), [1, -1])):
        (once,) = trip(tmp_path, [batch])
        (twice,) = trip(tmp_path, [once])
        same(twice, batch)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["jsonl", "table", "new", "none"]), max_size=4), st.integers(0, 12), st.integers(0, 12))
def test_ranges_of_rows(tmp_path_factory: Any, kinds: list[str], start: int, end: int) -> None:
    folder = tmp_path_factory.mktemp("trip")
    makers = {
        "jsonl": jsonl,
        "table": table,
        "new": lambda: with_new_rows(jsonl(), [-1, 3]),
        "none": lambda: jsonl().take(np.empty(0, np.int64)),
    }
    batches = [makers[k]() for k in kinds]
    back = trip(folder, batches, (start, end))
    everything = b"".join(lines(b) for b in batches if b.num_items).splitlines()
    assert b"".join(lines(b) for b in back).splitlines() == everything[start:end]


def test_sizes_and_cut_are_reported(tmp_path: Path) -> None:
    save([jsonl(), table()], str(tmp_path / "h.arrow"))
    _, contents = load(str(tmp_path / "h.arrow"), (2, 7))
    assert (contents.n_records, contents.cut) == (5, 4)
    assert contents.decoded_bytes > 0
    assert load(str(tmp_path / "h.arrow"), (2, 3))[1].cut == -1
