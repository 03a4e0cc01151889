"""Bytes and examples of dropped documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.engine.ledger import Dropped, Example, StageBook
from tamis.engine.worker.apply import UnitNotes, identify, run_stage
from tamis.engine.worker.dropped import StageInput
from tamis.engine.worker.rejections import Rejections
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.table_block import TableBlock
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch


def jsonl(*lines: bytes, file: int = 0) -> DocumentBatch:
    raw = b"".join(line + b"\n" for line in lines)
    block = JsonlBlock.parse(np.frombuffer(raw, np.uint8))
    block.places = (np.full(block.n_rows, file, np.int32), block.start.astype(np.int64))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    identify(batch)
    return batch


def rows(file: int = 0, **columns: Any) -> DocumentBatch:
    block = TableBlock(pa.table(columns))
    block.places = (np.full(block.n_rows, file, np.int32), np.arange(100, 100 + block.n_rows))
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    identify(batch)
    return batch


def examples(batch: DocumentBatch, *serials: int) -> list[Example]:
    return StageInput([batch]).examples(np.array(serials))


class Drop(ProcessingStage[Any, Any]):
    """Drops documents by their position; `in_place` puts what stays into the batch that it was given."""

    name = "drop"

    def __init__(self, gone: set[int], in_place: bool = False) -> None:
        self.gone, self.in_place = gone, in_place

    def process(self, task: DocumentBatch) -> DocumentBatch:
        keep = np.array([i not in self.gone for i in range(task.num_items)])
        if self.in_place:
            task.data = task.to_pyarrow().filter(pa.array(keep))
            return task
        return task.filter(keep)


def test_bytes_of_lines_without_their_line_breaks() -> None:
    seen = StageInput([jsonl(b'{"a":1}', b' {"a": 22}'), jsonl(b"{}", b'{"a":"\xc3\xa9"}', file=1)])
    assert [seen.n_bytes(np.array([i])) for i in range(4)] == [7, 10, 2, 10]
    assert seen.n_bytes(np.array([3, 1])) == 20
    assert seen.n_bytes(np.empty(0, np.int64)) == 0


def test_rows_of_a_table_share_its_bytes() -> None:
    batch = rows(n=pa.array([1, 2, 3, 4], pa.int64()), m=pa.array([1, 2, 3, 4], pa.int64()))
    assert StageInput([batch]).n_bytes(np.array([0, 3])) == 32


def test_documents_that_a_stage_made_have_no_bytes_and_no_place() -> None:
    made = jsonl(b'{"id":"x"}', b'{"id":"y"}')
    made._rows = np.array([0, -1])
    seen = StageInput([made.with_column("id", ["x", "new"])])
    assert seen.n_bytes(np.array([0, 1])) == 10
    assert seen.examples(np.array([0, 1])) == [(0, 0, "x"), (-1, -1, "new")]
    assert examples(made.with_column("id", ["x", None]), 1) == []


def test_examples_are_the_first_three_by_id_or_by_place() -> None:
    batch = jsonl(b'{"id":"x"}', b'{"id":7}', b'{"id":null}', b'{"n":1}', b'{"id":""}')
    assert examples(batch, 4, 1, 3, 0, 2) == [(0, 0, "x"), (0, 11, "7"), (0, 20, None)]
    assert examples(batch, 4, 3) == [(0, 32, None), (0, 40, None)]
    assert examples(jsonl(b'{"n":1}', b'{"n":2}', file=3), 1) == [(3, 8, None)]
    assert examples(rows(file=2, id=pa.array([5, 6])), 1) == [(2, 101, "6")]


def test_ids_that_are_long_or_no_names_are_left_out() -> None:
    batch = jsonl(b'{"id":"%s"}' % (b"x" * 201), b'{"id":"%s"}' % (b"y" * 200))
    assert examples(batch, 0, 1) == [(0, 0, None), (0, 211, "y" * 200)]
    assert examples(jsonl(b'{"id":{"a":1}}', b'{"id":{"a":2}}'), 1) == [(0, 15, None)]
    assert examples(rows(id=pa.array([1, 2**62], pa.timestamp("ns"))), 1) == [(0, 101, None)]
    assert examples(rows(id=pa.array([1.5, 2.0])), 0, 1) == [(0, 100, "1.5"), (0, 101, "2")]
    assert examples(rows(id=pa.array([True, False])), 0) == [(0, 100, None)]


def test_a_stage_book_has_them() -> None:
    book = StageBook("drop")
    batches: list[Any] = [jsonl(b'{"id":"a"}', b'{"id":"b"}'), jsonl(b'{"n":1}', b'{"n":22}', file=1)]
    run_stage(Drop({1}), "drop", batches, book)
    (tally,) = book.dropped.values()
    assert tally == Dropped(2, tally.identity, 18, [(0, 11, "b"), (1, 8, None)])


def test_a_stage_may_change_the_very_batch_it_was_given() -> None:
    book, rejections = StageBook("drop"), Rejections(True)
    results = run_stage(
        Drop({0, 2}, in_place=True), "drop", [jsonl(b'{"id":1}', b'{"id":2}', b'{"id":3}')], book, UnitNotes(rejections)
    )
    assert [r.column("id").to_pylist() for r in results if isinstance(r, DocumentBatch)] == [[2]]
    assert (book.imbalance(), book.dropped["drop"].n_bytes) == (None, 16)
    assert book.dropped["drop"].examples == [(0, 0, "1"), (0, 18, "3")]
    (verdicts,) = rejections._tables
    assert pc.equal(verdicts["id"], pa.chunked_array([["1", "3"]], pa.large_string())).to_pylist() == [True, True]
