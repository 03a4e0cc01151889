"""Running a stage keeps the books: every document is kept, dropped, or replaced by derived ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.engine.ledger import StageBook
from tamis.engine.worker.apply import StageFailure, StageUsage, UnitNotes, identify, run_stage
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.kernels.records import hash128
from tamis.memory.release import RESIDENT
from tamis.stages.base import ProcessingStage
from tamis.tasks import ROW_ID, DocumentBatch


@dataclass(repr=False)
class Do(ProcessingStage[Any, Any]):
    """A stage from a function."""

    what: Callable[[DocumentBatch], Any]
    name: str = "do"

    def process(self, task: DocumentBatch) -> Any:
        return self.what(task)


def batch(n: int = 4) -> DocumentBatch:
    raw = b"".join(b'{"n": %d, "t":"x"}\n' % i for i in range(n))
    block = JsonlBlock.parse(np.frombuffer(raw, np.uint8))
    made = DocumentBatch.over(block, np.arange(n))
    identify(made)
    return made


def run(what: Callable[[DocumentBatch], Any], *batches: DocumentBatch) -> tuple[list[Any], StageBook]:
    book = StageBook("do")
    results = run_stage(Do(what), "do", list(batches or (batch(),)), book)
    assert book.imbalance() is None
    documents = [r for r in results if isinstance(r, DocumentBatch)]
    n = sum(r.num_items for r in documents)
    assert book.out.n + book.derived.n == n
    total = sum(hash128.sum128(*r._identity) for r in documents if r._identity is not None) % (1 << 128)
    assert (book.out.identity + book.derived.identity) % (1 << 128) == total
    return results, book


def counts(book: StageBook) -> tuple[int, int, int, int, int]:
    return book.into.n, book.out.n, sum(t.n for t in book.dropped.values()), book.consumed.n, book.derived.n


def lines(results: list[Any]) -> list[bytes]:
    return [line for r in results for line in encode_jsonl(r).data.tobytes().splitlines()]


def test_a_batch_without_documents_is_not_passed_to_a_stage() -> None:
    seen: list[int] = []

    def largest(b: DocumentBatch) -> DocumentBatch:
        seen.append(b.num_items)
        max(b.values("n"))  # raises ValueError for a batch without documents
        return b

    results, book = run(largest, batch(0), batch(3), batch().filter(np.zeros(4, bool)))
    assert seen == [3]
    assert counts(book) == (3, 3, 0, 0, 0)
    assert len(lines(results)) == 3
    assert run(largest, batch(0))[0] == []


def test_a_source_stage_is_called_with_what_it_is_given() -> None:
    stage = Do(lambda b: DocumentBatch("new", pa.table({"n": [1, 2]})))
    stage.is_source_stage = True
    (result,) = run_stage(stage, "do", [batch(0)], StageBook("do"))
    assert result.num_items == 2


def test_kept_as_they_are() -> None:
    results, book = run(lambda b: b)
    assert counts(book) == (4, 4, 0, 0, 0)
    assert lines(results)[2] == b'{"n": 2, "t":"x"}'


def test_filtered_by_the_batch_by_arrow_and_by_pandas() -> None:
    pytest.importorskip("pandas")

    def by_arrow(b: DocumentBatch) -> DocumentBatch:
        table = b.to_pyarrow()
        return DocumentBatch(b.dataset_name, table.filter(pc.greater(table["n"], 1)))

    def by_pandas(b: DocumentBatch) -> DocumentBatch:
        frame = b.to_pandas()
        return DocumentBatch(b.dataset_name, frame[frame["n"] > 1])

    for what in (lambda b: b.filter(np.arange(4) > 1), by_arrow, by_pandas):
        results, book = run(what)
        assert counts(book) == (4, 2, 2, 0, 0)
        assert list(book.dropped) == ["do"]
        assert lines(results) == [b'{"n": 2, "t":"x"}', b'{"n": 3, "t":"x"}']


def test_none_drops_everything() -> None:
    results, book = run(lambda b: None)
    assert (results, counts(book)) == ([], (4, 0, 4, 0, 0))


def test_changed_documents_are_the_same_documents() -> None:
    results, book = run(lambda b: b.with_column("t", ["x", "y", "x", "x"]))
    assert counts(book) == (4, 4, 0, 0, 0)
    assert lines(results)[:2] == [b'{"n": 0, "t":"x"}', b'{"n": 1, "t":"y"}']


def test_copies_are_derived_and_differ() -> None:
    results, book = run(lambda b: b.take(np.array([0, 0, 1])))
    assert counts(book) == (4, 1, 2, 1, 2)
    hi, lo = results[0]._identity
    assert len({*zip(hi.tolist(), lo.tolist(), strict=True)}) == 3


def test_new_documents_replace_those_that_are_gone() -> None:
    def split(b: DocumentBatch) -> DocumentBatch:
        return DocumentBatch(b.dataset_name, pa.table({"t": ["a", "b", "c", "d", "e"]}))

    results, book = run(split)
    assert counts(book) == (4, 0, 0, 4, 5)
    assert lines(results) == [b'{"t":"%s"}' % c for c in (b"a", b"b", b"c", b"d", b"e")]


def test_some_kept_some_new() -> None:
    def add(b: DocumentBatch) -> DocumentBatch:
        table = b.to_pyarrow(["t"]).slice(0, 2)
        return DocumentBatch(
            "", pa.concat_tables([table, pa.table({"t": ["new"], ROW_ID: pa.array([-1])}).cast(table.schema)])
        )

    results, book = run(add)
    assert counts(book) == (4, 2, 0, 2, 1)
    assert lines(results)[2] == b'{"t":"new"}'


def test_several_batches_in_and_out() -> None:
    results, book = run(lambda b: [b.take(np.array([0])), b.take(np.array([1, 2, 3]))], batch(4), batch(4))
    assert (len(results), counts(book)) == (4, (8, 8, 0, 0, 0))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=3))
def test_any_choice_of_rows_balances(parts: list[list[int]]) -> None:
    results, book = run(lambda b: [b.take(np.array(p, np.int64)) for p in parts], batch(6))
    chosen = [i for p in parts for i in p]
    once = sum(chosen.count(i) == 1 for i in range(6))
    assert counts(book)[:2] == (6, once)
    assert len(lines(results)) == len(chosen)


def test_what_a_stage_raises_carries_its_name() -> None:
    with pytest.raises(StageFailure, match="stage 'do' raised ZeroDivisionError"):
        run(lambda b: 1 // 0)
    with pytest.raises(StageFailure, match="must return a task, a list of tasks or None, got int"):
        run(lambda b: [1])


def test_running_out_of_memory_names_the_stage_too() -> None:
    def fail(b: DocumentBatch) -> None:
        raise MemoryError

    with pytest.raises(StageFailure) as caught:
        run(fail)
    assert (caught.value.stage, type(caught.value.cause)) == ("do", MemoryError)


class Noting(ProcessingStage[Any, Any]):
    """Drops documents 0 to 2 and says why of some; document 3 is noted and kept all the same."""

    name = "noting"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        serials = task.serial
        self._note_drops(serials[[0, 3]], "short", np.array([1.0, 9.0]), {"min_chars": 5})
        self._note_drops(serials[[0, 1]], "noting", np.array([0, 0]), "never")
        self._note_drops(serials[:0], "nobody", np.array([]), {})
        return task.filter(np.arange(task.num_items) > 2)


def test_drops_are_counted_under_the_first_reason_that_the_stage_gave() -> None:
    book, stage = StageBook("noting#2"), Noting()
    results = run_stage(stage, "noting#2", [batch(5), batch(5)], book)
    assert {reason: tally.n for reason, tally in book.dropped.items()} == {"short": 2, "noting#2": 4}
    assert (counts(book), book.imbalance()) == ((10, 4, 6, 0, 0), None)
    assert len(lines(results)) == 4
    assert stage._take_notes().drops == []


def test_what_a_failed_attempt_counted_does_not_count() -> None:
    class Failing(ProcessingStage[Any, Any]):
        name = "failing"
        fails = True

        def process(self, task: DocumentBatch) -> DocumentBatch:
            self._log_metric("seen", task.num_items)
            if self.fails:
                raise ValueError
            return task

    stage, book = Failing(), StageBook("failing")
    with pytest.raises(StageFailure):
        run_stage(stage, "failing", [batch(3)], book)
    stage.fails = False
    run_stage(stage, "failing", [batch(3)], book)
    assert book.metrics == {"seen": 3}


def test_what_a_stage_counts_itself_is_added_up() -> None:
    class Counting(ProcessingStage[Any, Any]):
        name = "counting"

        def process(self, task: DocumentBatch) -> DocumentBatch:
            self._log_metric("seen", task.num_items)
            return task

    book = StageBook("counting")
    run_stage(Counting(), "counting", [batch(3)], book)
    run_stage(Counting(), "counting", [batch(2)], book)
    assert book.metrics == {"seen": 5.0}
    assert StageBook.from_dict(book.to_dict()).metrics == {"seen": 5.0}


LINE_BYTES = len(b'{"n": 0, "t":"x"}')


def used(*functions: Callable[[DocumentBatch], Any]) -> list[list[Any]]:
    tasks: list[Any] = [batch(4)]
    uses = StageUsage()
    for i, function in enumerate(functions):
        tasks = run_stage(Do(function), f"s{i}", tasks, StageBook(f"s{i}"), UnitNotes(uses=uses))
    return [list(use) for use in uses.rows]


def _peaks_of_three() -> list[list[Any]]:
    def hungry(b: DocumentBatch) -> DocumentBatch:
        held = np.ones(8_000_000)
        assert held.sum() == 8_000_000
        return b

    def same(b: DocumentBatch) -> DocumentBatch:
        return b

    return used(same, hungry, same)


def test_each_stage_reports_its_bytes_cpu_and_peak() -> None:
    """In a process of its own, as in a worker: what other tests left behind may go at any moment."""
    script = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['_peaks_of_three']()))"
    done = subprocess.run(
        [sys.executable, "-c", script, __file__], capture_output=True, text=True, check=True, timeout=100
    )
    rows = json.loads(done.stdout)
    assert [row[0] for row in rows] == ["s0", "s1", "s2"]
    assert [row[1] for row in rows] == [4 * LINE_BYTES] * 3
    assert all(row[2] >= 0 for row in rows)
    assert rows[1][3] > 60_000_000
    assert rows[0][3] < 30_000_000  # the peak of one stage is not that of the others
    assert rows[2][3] < 30_000_000


def test_bytes_go_with_the_documents() -> None:
    rows = used(
        lambda b: b.filter(np.array([True, False, True, True])),
        lambda b: None,
        lambda b: b,
    )
    assert [row[1] for row in rows] == [4 * LINE_BYTES, 3 * LINE_BYTES, 0]


def test_bytes_are_counted_anew_after_copies() -> None:
    rows = used(lambda b: [b, b.take(np.array([0, 1]))], lambda b: b)
    assert [row[1] for row in rows] == [4 * LINE_BYTES, 6 * LINE_BYTES]


def test_a_stage_that_raises_leaves_no_measurement_open() -> None:
    def fails(b: DocumentBatch) -> DocumentBatch:
        raise ValueError("no")

    before = len(RESIDENT.meters)
    with pytest.raises(StageFailure):
        used(fails)
    assert len(RESIDENT.meters) == before
