"""DocumentBatch: decoded on demand, and every row remembers where it came from, through Arrow and pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tamis import InProcessExecutor, Pipeline, ProcessingStage
from tamis.errors import UsageError
from tamis.formats.table_block import TableBlock
from tamis.formats.whole_file import read_whole_file
from tamis.stages.text.io.reader import JsonlReader
from tamis.tasks import ROW_ID, DocumentBatch, EmptyTask, FileGroupTask, Task
from tamis.tasks.returned_data import trace_returned


class Records(TableBlock):
    """An origin that counts what is decoded."""

    def __init__(self, **columns: list[Any]) -> None:
        super().__init__(pa.table(columns))
        self.columns = columns
        self.n_rows = len(next(iter(columns.values())))
        self.decoded: list[str] = []

    def field_names(self, rows: Any = None) -> list[str]:
        return list(self.columns)

    def column(self, name: str) -> pa.Array:
        self.decoded.append(name)
        return pa.array(self.columns.get(name, [None] * self.n_rows))

    def exact(self, name: str, rows: np.ndarray[Any, Any]) -> pa.Array:
        return self.column(name).take(pa.array(np.maximum(rows, 0), mask=rows < 0))


def lazy() -> tuple[DocumentBatch, Records]:
    origin = Records(text=["a", "b", "c", "d"], n=[1, 2, 3, 4])
    batch = DocumentBatch.over(origin, np.arange(4), "set")
    batch._identity = (np.arange(10, 14, dtype=np.uint64), np.arange(20, 24, dtype=np.uint64))
    return batch, origin


def returned(data: Any, batch: DocumentBatch) -> DocumentBatch:
    """Return a batch as a user's stage would, with its lineage restored."""
    child = DocumentBatch("set", data)
    trace_returned(child, [batch])
    return child


# -- other tasks ------------------------------------------------------------------------------------------------------
def test_tasks_of_other_kinds() -> None:
    assert (Task("d", 5).num_items, Task("d").num_items, EmptyTask().task_id, EmptyTask().num_items) == (1, 0, "0", 0)
    group = FileGroupTask("d", ["b", "a"])
    assert (group.num_items, group.task_id) == (2, FileGroupTask("e", ["a", "b"]).task_id)
    assert group.task_id != FileGroupTask("d", ["a"]).task_id
    assert Task("d", 1, task_id="7").task_id == "7"


# -- reading ----------------------------------------------------------------------------------------------------------
def test_columns_are_decoded_on_first_use_and_once() -> None:
    batch, origin = lazy()
    assert (batch.num_items, batch.get_columns(), origin.decoded) == (4, ["text", "n"], [])
    assert batch.column("n").to_pylist() == [1, 2, 3, 4]
    assert batch.column("n").to_pylist() == [1, 2, 3, 4]
    assert origin.decoded == ["n"]
    assert batch.column("absent").to_pylist() == [None] * 4


def test_row_ids_are_not_shown_outside_of_a_stage(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    seen: list[list[str]] = []

    class Look(ProcessingStage[DocumentBatch, DocumentBatch]):
        name = "look"

        def process(self, task: DocumentBatch) -> DocumentBatch:
            seen.append(task.to_pyarrow().column_names)
            return task

    (result,) = Pipeline("x", stages=[JsonlReader(str(tmp_path / "in.jsonl")), Look()]).run(InProcessExecutor())
    assert seen == [["text", ROW_ID]]
    read = DocumentBatch.of(read_whole_file(str(tmp_path / "in.jsonl")).lineage, frames="pyarrow")  # type: ignore[arg-type]
    for batch in (result, read, read.take(np.array([1])), read.with_column("n", [1, 2]).select(["text"])):
        assert batch.get_columns() == batch.to_pyarrow().column_names == batch.to_pyarrow().schema.names == ["text"]
        assert list(batch.to_pandas().columns) == ["text"]
    assert read.data.column_names == ["text"]


def test_tables_and_frames_carry_a_hidden_row_id() -> None:
    batch, _ = lazy()
    assert batch.traced_table().column_names == ["text", "n", ROW_ID]
    assert batch.traced_table(["n"]).to_pydict() == {"n": [1, 2, 3, 4], ROW_ID: [0, 1, 2, 3]}
    assert batch.get_columns() == ["text", "n"]
    frame = batch.to_pandas()
    assert (list(frame.columns), frame.index.name, list(frame.index)) == (["text", "n"], None, [0, 1, 2, 3])


def test_a_batch_of_ones_own() -> None:
    for data in (pa.table({"text": ["x", "y"]}), pd.DataFrame({"text": ["x", "y"]})):
        batch = DocumentBatch("mine", data)
        assert (batch.num_items, batch.get_columns(), batch.column("text").to_pylist()) == (2, ["text"], ["x", "y"])
        assert batch.to_pyarrow().to_pydict() == {"text": ["x", "y"]}
        assert batch.to_pandas()["text"].tolist() == ["x", "y"]
    assert DocumentBatch("empty").num_items == 0
    with pytest.raises(UsageError, match=r"expected a pyarrow.Table or a DataFrame of pandas or cuDF, got list"):
        DocumentBatch("mine", [1])  # type: ignore[arg-type]


# -- changing ---------------------------------------------------------------------------------------------------------
def test_take_and_filter_keep_rows_identities_and_order() -> None:
    batch, origin = lazy()
    some = batch.with_column("m", [5, 6, 7, 8]).take(np.array([3, 1]))
    assert (some._rows is not None and some._rows.tolist(), some.serial.tolist()) == ([3, 1], [3, 1])
    assert some._identity is not None
    assert some._identity[0].tolist() == [13, 11]
    assert some.column("m").to_pylist() == [8, 6]
    assert origin.decoded == []
    kept = batch.filter(np.array([True, False, True, False]))
    assert kept.column("text").to_pylist() == ["a", "c"]
    assert batch.filter(np.ones(4, bool)) is batch
    assert batch.filter(np.zeros(4, bool)).num_items == 0
    assert batch.num_items == 4


def test_columns_can_be_added_changed_dropped_and_chosen() -> None:
    batch, origin = lazy()
    more = batch.with_column("m", pa.chunked_array([[5, 6], [7, 8]]))
    assert (more.get_columns(), more.column("m").to_pylist(), batch.get_columns()) == (
        ["text", "n", "m"],
        [5, 6, 7, 8],
        ["text", "n"],
    )
    assert batch.with_column("n", [0, 0, 0, 0]).column("n").to_pylist() == [0, 0, 0, 0]
    less = more.drop_columns(["n", "m"])
    assert (less.get_columns(), less.column("n").to_pylist()) == (["text"], [None] * 4)
    assert less.with_column("n", [9, 9, 9, 9]).get_columns() == ["text", "n"]
    assert more.select(["m", "text"]).get_columns() == ["text", "m"]
    assert more.select(["m"]).select(["m", "text"]).get_columns() == ["m"]
    assert origin.decoded == []
    with pytest.raises(UsageError, match=r"with_column\('m'\): 1 values for 4 documents"):
        batch.with_column("m", [1])


def test_the_same_changes_on_a_batch_of_ones_own() -> None:
    batch = DocumentBatch("mine", pa.table({"a": [1, 2], "b": [3, 4]}))
    assert batch.with_column("a", [7, 8]).to_pyarrow().to_pydict() == {"a": [7, 8], "b": [3, 4]}
    assert batch.with_column("c", [7, 8]).get_columns() == ["a", "b", "c"]
    assert batch.drop_columns(["a", "zz"]).get_columns() == ["b"]
    assert batch.select(["b", "zz"]).get_columns() == ["b"]
    assert batch.take(np.array([1])).column("a").to_pylist() == [2]


# -- lineage through what users return --------------------------------------------------------------------------------
@pytest.mark.parametrize("mask", [[True], [True, True, False, True], True, [[True, False, True]]])
def test_filter_takes_one_value_for_each_document(mask: Any) -> None:
    batch = DocumentBatch("d", pa.table({"text": ["a", "b", "c"]}))
    with pytest.raises(ValueError, match="one true or false for each of the 3 documents"):
        batch.filter(mask)
    assert batch.filter([True, None, True]).column("text").to_pylist() == ["a", "c"]


def test_a_frame_that_was_filtered_and_sorted() -> None:
    batch, _ = lazy()
    frame = batch.to_pandas()
    child = returned(frame[frame.n != 2].sort_values("n", ascending=False), batch)
    assert (child.serial.tolist(), child._rows is not None and child._rows.tolist()) == ([3, 2, 0], [3, 2, 0])
    assert child._identity is not None
    assert child._identity[0].tolist() == [13, 12, 10]
    assert child.column("text").to_pylist() == ["d", "c", "a"]
    assert child._columns == {}  # nothing was changed, so nothing is encoded again


def test_a_table_that_was_filtered() -> None:
    batch, _ = lazy()
    child = returned(batch.to_pyarrow().slice(1, 2), batch)
    assert child.serial.tolist() == [1, 2]
    assert child._columns == {}


def test_changed_new_and_dropped_columns_are_distinguished() -> None:
    batch, _ = lazy()
    frame = batch.to_pandas()
    frame["score"] = [0.5, 0.6, 0.7, 0.8]
    frame.loc[2, "n"] = 99
    child = returned(frame, batch)
    assert sorted(child._columns) == ["n", "score"]
    assert child.column("n").to_pylist() == [1, 2, 99, 4]
    assert child.get_columns() == ["text", "n", "score"]
    less = returned(batch.to_pandas().drop(columns=["n"]), batch)
    assert less.get_columns() == ["text"]
    assert less.column("n").to_pylist() == [None] * 4


def test_nulls_in_a_column_of_numbers_survive_pandas() -> None:
    origin = Records(n=[1, None, 3])
    batch = DocumentBatch.over(origin, np.arange(3))
    child = returned(batch.to_pandas(), batch)
    assert child._columns == {}
    assert child.column("n").to_pylist() == [1, None, 3]


def test_exploded_rows_are_copies_of_their_parents() -> None:
    batch, _ = lazy()
    frame = batch.to_pandas(["text"])
    frame["part"] = [["x", "y"], ["z"], [], ["w"]]
    child = returned(frame.explode("part"), batch)
    assert child.serial.tolist() == [0, 0, 1, 2, 3]
    assert child.column("part").to_pylist() == ["x", "y", "z", None, "w"]


def test_rows_whose_index_was_reset_are_traced_by_their_values() -> None:
    batch, _ = lazy()
    child = returned(batch.to_pandas().iloc[::-1].reset_index(drop=True), batch)
    assert child.serial.tolist() == [3, 2, 1, 0]
    assert child.column("text").to_pylist() == ["d", "c", "b", "a"]
    assert child._columns == {}


def test_an_index_that_was_reset_into_a_column_is_a_column_as_with_any_frame() -> None:
    batch, _ = lazy()
    child = returned(batch.to_pandas().reset_index(), batch)
    assert child.serial.tolist() == [0, 1, 2, 3]
    assert child.get_columns() == ["text", "n", "index"]


def test_rows_that_were_appended_are_new() -> None:
    batch, _ = lazy()
    table = batch.traced_table()
    extra = pa.table({"text": ["new"], "n": [9], ROW_ID: pa.array([None], pa.int64())})
    child = returned(pa.concat_tables([table, extra]), batch)
    assert child.serial.tolist() == [0, 1, 2, 3, -1]
    assert child.column("text").to_pylist() == ["a", "b", "c", "d", "new"]


def test_ids_that_were_never_given_out_are_refused() -> None:
    batch, _ = lazy()
    forged = pa.table({"text": ["x", "y"], ROW_ID: [77, -1]})
    child = returned(forged, batch)
    assert child.serial.tolist() == [-1, -1]


def test_a_table_without_rows() -> None:
    batch, _ = lazy()
    child = returned(batch.to_pyarrow().slice(0, 0), batch)
    assert (child.num_items, child.get_columns()) == (0, ["text", "n"])


def test_a_table_of_nothing_the_parent_had() -> None:
    batch, _ = lazy()
    child = returned(pa.table({"other": [1]}), batch)
    assert (child.serial.tolist(), child.get_columns()) == ([-1], ["other"])


def test_data_is_a_frame_made_once_and_changed_in_place() -> None:
    batch, origin = lazy()
    assert origin.decoded == []
    assert isinstance(batch.data, pd.DataFrame)
    assert batch.data is batch.data
    batch.data["n"] += 1
    assert (batch.get_columns(), batch.column("n").to_pylist(), batch.num_items) == (["text", "n"], [2, 3, 4, 5], 4)
    assert batch.to_pandas() is batch.data
    kept = batch.filter(np.array([1, 0, 0, 1], bool))
    assert (kept.serial.tolist(), sorted(kept._columns), kept.column("n").to_pylist()) == ([0, 3], ["n"], [2, 5])
    assert batch.as_read.column("n").to_pylist() == [1, 2, 3, 4]


def test_data_is_what_was_given() -> None:
    table, frame = pa.table({"a": [1]}), pd.DataFrame({"a": [1]})
    assert DocumentBatch("set", table).data is table
    assert DocumentBatch("set", frame).data is frame
    with pytest.raises(UsageError, match=r"expected a pyarrow.Table or a DataFrame of pandas or cuDF, got list"):
        DocumentBatch("set", frame).data = [1]


def test_assigning_data_replaces_the_documents_in_place() -> None:
    batch, _ = lazy()
    frame = batch.to_pandas()
    batch.data = frame[frame.n > 2].assign(n=[30, 40])
    batch.data["more"] = [1, 2]
    assert (batch.num_items, batch.dataset_name) == (2, "set")
    settled = batch.take(np.arange(2))
    assert settled.serial.tolist() == [2, 3]
    assert settled.column("text").to_pylist() == ["c", "d"]
    assert settled.column("n").to_pylist() == [30, 40]
    assert sorted(settled._columns) == ["more", "n"]


def test_two_parents_of_one_block_are_distinguished_by_serial() -> None:
    batch, _ = lazy()
    left, right = batch.take(np.array([0, 1])), batch.take(np.array([2, 3]))
    child = DocumentBatch("set", pa.concat_tables([right.to_pyarrow(), left.to_pyarrow()]))
    trace_returned(child, [left, right])
    assert child._rows is not None
    assert child._rows.tolist() == [2, 3, 0, 1]
    assert child._columns == {}


def test_a_selection_stays_a_selection() -> None:
    batch, _ = lazy()
    chosen = batch.select(["n"])
    child = returned(chosen.to_pandas().assign(score=1.0), chosen)
    assert child.get_columns() == ["n", "score"]


def test_what_stages_measured_follows_the_rows_until_the_column_changes() -> None:
    batch = DocumentBatch("", pa.table({"text": ["a", "b", "c"], "n": [1, 2, 3]}))
    batch.measured["text", "words"] = np.array([10, 20, 30])
    taken = batch.take(np.array([2, 0]))
    assert taken.measured["text", "words"].tolist() == [30, 10]
    assert taken.with_column("n", [0, 0]).measured.keys() == {("text", "words")}
    assert taken.with_column("text", ["x", "y"]).measured == {}
    assert taken.drop_columns(["text"]).measured == {}
    assert batch.measured["text", "words"].tolist() == [10, 20, 30]


def test_decoded_columns_are_copied_only_for_those_who_ask() -> None:
    class Block:
        n_rows, places, n_decoded = 8, None, 0

        def field_names(self, rows: Any = None) -> list[str]:
            return ["text"]

        def column(self, name: str) -> pa.Array:
            self.n_decoded += 1
            return pa.array(list("abcdefgh"))

    block = Block()
    batch = DocumentBatch.over(block, np.arange(8))
    batch.column("text")
    most = batch.take(np.array([0, 2, 3, 5, 6, 7]))
    assert most._cache == {}
    fewer = most.take(np.array([1, 2, 4]))
    assert fewer.column("text").to_pylist() == ["c", "d", "g"]
    assert most.column("text").to_pylist() == ["a", "c", "d", "f", "g", "h"]
    one = batch.take(np.array([4]))
    assert one._cache["text"].to_pylist() == ["e"]
    assert block.n_decoded == 1
