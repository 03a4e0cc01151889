"""Running stages over batches, with the books kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa

from tamis._dataclasses import dataclass
from tamis.engine.histograms import Histogram
from tamis.engine.ledger import DROPPED_TOKENS, UNTRACED, StageBook
from tamis.engine.messages import StageUse
from tamis.engine.worker.binning import as_numbers, count, is_whole
from tamis.engine.worker.dropped import StageInput, record_bytes
from tamis.engine.worker.rejections import Rejections
from tamis.engine.worker.sampling import SampleCollector
from tamis.engine.worker.survivor_scores import ScoreCollector
from tamis.errors import PipelineError
from tamis.failures import is_memory_failure
from tamis.formats.table_block import TableBlock
from tamis.kernels import spare
from tamis.kernels.records import hash128
from tamis.memory import meter
from tamis.memory.release import PeakMeter
from tamis.stages.base import ALL_BATCHES, ProcessingStage
from tamis.stages.notes import DropNote, InputNotes
from tamis.tasks import DocumentBatch, FailedTask, FileGroupTask, NoneTask, Origin, Task
from tamis.tasks.returned_data import parents_of, trace_returned

MAX_TRIED = 20  # documents that a stage is tried on, one by one, after it failed on all at once
_MAX_TRIAL_S = 2.0
GIVEN_UP = "tasks_given_up"  # the metric of a stage that returned FailedTask
Quarantine = Callable[[DocumentBatch, str, list[str]], None]
"""Takes documents that a stage cannot do: the batch, the stage, a reason for each."""
Identity = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


class StageFailure(Exception):
    """A stage raised; carries which."""

    def __init__(self, stage: str, cause: BaseException) -> None:
        cause = _printable(cause)
        super().__init__(f"stage {stage!r} raised {type(cause).__name__}: {cause}")
        self.stage, self.cause = stage, cause
        self.tasks: Sequence[Task[Any]] = ()  # what the stage got, if these were the first tasks of the unit
        self.n_failed_alone = 0  # documents that it was tried on, one by one


def _printable(cause: BaseException) -> BaseException:
    """Return an exception, or another raised at the same place if it cannot be turned into text."""
    try:
        str(cause)
    except Exception as exc:
        text = f"{type(cause).__name__}, whose text cannot be made ({type(exc).__name__} in its __str__)"
        return RuntimeError(text).with_traceback(cause.__traceback__)
    return cause


class SetupFailure(StageFailure):
    """A stage's setup() raised: no document is to blame."""


def identify(batch: DocumentBatch) -> None:
    """Give a fresh batch its identities: the content hash of each record."""
    if batch.lineage is None:
        _root(batch)
    lineage = batch.lineage
    assert lineage is not None
    hi, lo = lineage.origin.identity()
    batch.identify(hi[lineage.rows], lo[lineage.rows])


class StageUsage:
    """Resources that each stage of a unit took; counts are in the books.

    The peak is the highest resident memory in the stage, above where the unit began. The kernel's counter is reset for
    each stage, so that it is exact; that and reading it back takes 60 us.
    """

    def __init__(self) -> None:
        self.rows: list[StageUse] = []
        statm = meter.statm()
        self._floor_bytes = 0 if statm is None else statm.resident_bytes - spare.held_bytes()
        self._in_bytes: int | None = None

    def begin(self, tasks: Sequence[Task[Any]]) -> None:
        if self._in_bytes is None:
            batches = [t for t in tasks if isinstance(t, DocumentBatch)]
            self._in_bytes = sum(int(record_bytes(b).sum()) for b in batches)
        self._handles = meter.n_descriptors(), meter.n_threads()
        self._cpu_s = time.process_time()
        self._watch = PeakMeter().start()

    def end(self, label: str, book: StageBook) -> None:
        try:
            peak_bytes = max(0, self._watch.stop() - self._floor_bytes)
        except OSError:  # the stage has used up the descriptors; what it raised for that matters more
            peak_bytes = 0
        cpu_s = round(time.process_time() - self._cpu_s, 6)
        descriptors, threads = meter.n_descriptors() - self._handles[0], meter.n_threads() - self._handles[1]
        self.rows.append(StageUse(label, self._in_bytes or 0, cpu_s, peak_bytes, descriptors, threads))
        if book.derived.n or book.consumed.n or self._in_bytes is None:
            self._in_bytes = None  # other documents than before: counted again
        else:  # counting again for every stage would cost more than a cheap stage does
            self._in_bytes -= sum(tally.n_bytes for tally in book.dropped.values())


@dataclass
class UnitNotes:
    """Notes on the documents of a unit, in addition to the books.

    Why they were dropped, what stages took, the scores of those that stayed. `quarantine` takes documents that a stage
    cannot process; `read` takes what a stage (the first argument) read from files by itself.
    """

    rejections: Rejections = field(default_factory=lambda: Rejections(False))
    uses: StageUsage = field(default_factory=StageUsage)
    score_collector: ScoreCollector = field(default_factory=lambda: ScoreCollector(()))
    quarantine: Quarantine = lambda batch, stage, reasons: None
    read: Callable[[str, InputNotes], None] = lambda stage, notes: None
    samples: SampleCollector | None = None
    token_field: str | None = None  # with the number of tokens of each document, once a stage has counted them


def run_stage(
    stage: ProcessingStage[Any, Any],
    label: str,
    tasks: list[Task[Any]],
    book: StageBook,
    notes: UnitNotes | None = None,
    keep_whole: bool = False,
    is_last: bool = False,
) -> list[Task[Any]]:
    """Run one stage over all tasks of a unit, `batch_size` tasks at a time.

    `keep_whole`: the user has defined what a task is. `is_last`: no stage follows, so that documents for which it
    returns files are written. Batches without documents (nothing of them is in the
    sample, or an earlier stage dropped all) end here: a stage that fails on one would have documents
    quarantined that it never received. Nothing would be written of them either.
    """
    notes = notes or UnitNotes()
    if not stage.is_source_stage:
        tasks = [t for t in tasks if t.num_items or not isinstance(t, DocumentBatch)]
    started_s = time.perf_counter()
    results: list[Task[Any]] = []
    size = max(1, stage.batch_size)
    # Only a single batch is split: several are as the user cut the input; stages that take all at once get them whole.
    if not keep_whole and ALL_BATCHES > size > len(tasks) == 1 and stage.supports_batch_processing():
        tasks = _in_parts(tasks, size)
    notes.uses.begin(tasks)
    try:
        for i in range(0, len(tasks), size):
            results += _run_chunk(stage, label, tasks[i : i + size], book, notes, is_last)
    except BaseException as exc:
        stage._consume_custom_metrics()  # of an attempt that does not count
        if isinstance(exc, StageFailure) and i == 0:
            exc.tasks = tasks[:size]
        raise
    finally:
        notes.uses.end(label, book)
    book.seconds += time.perf_counter() - started_s
    book.count(stage._consume_custom_metrics())
    return results


def try_alone(
    stage: ProcessingStage[Any, Any], label: str, tasks: Sequence[Task[Any]], from_end: bool = False
) -> StageFailure | None:
    """Run a stage on up to 20 documents, each alone; return a failure if it fails on all of them, None if one passes.

    Separates a mistake in the stage from bad data within one attempt. The documents are spread over those that the
    stage failed on together; a slow stage gets fewer. `from_end`: begin with the last one.
    """
    batches = [t.as_read for t in tasks if isinstance(t, DocumentBatch)]
    ends = np.cumsum([b.num_items for b in batches])
    n_documents = int(ends[-1]) if len(ends) else 0
    positions = np.unique(np.linspace(0, max(n_documents - 1, 0), min(MAX_TRIED, n_documents)).astype(np.int64))
    began_s, n_failed, first = time.monotonic(), 0, None
    for position in positions[::-1] if from_end else positions:
        which = int(np.searchsorted(ends, position, side="right"))
        row = position - (ends[which - 1] if which else 0)
        try:
            _run_chunk(stage, label, [batches[which].take(np.array([row]))], StageBook(label), UnitNotes(), False)
        except StageFailure as exc:
            if is_memory_failure(exc.cause):
                return None
            n_failed, first = n_failed + 1, first or exc
        else:
            return None
        finally:
            stage._consume_custom_metrics()
        if time.monotonic() - began_s > _MAX_TRIAL_S:
            break
    if first is not None:
        first.n_failed_alone = n_failed
    return first


def narrow(tasks: Sequence[Task[Any]]) -> None:
    """Report to origins between two stages which records are dropped, so that they are no longer parsed."""
    rows: dict[int, tuple[Origin, list[np.ndarray[Any, Any]]]] = {}
    for task in tasks:
        if not isinstance(task, DocumentBatch) or (lineage := task.lineage) is None:
            return  # whatever it holds
        rows.setdefault(id(lineage.origin), (lineage.origin, []))[1].append(lineage.rows)
    for origin, parts in rows.values():
        if not origin.is_parsed:
            origin.narrow(np.concatenate(parts))


def _in_parts(tasks: list[Task[Any]], n: int) -> list[Task[Any]]:
    """Split batches, the largest first, until a stage that asks for `n` tasks at once gets so many.

    Who asks for several batches has a use for them, one per thread or device; a partition alone would be a single one.
    """
    parts = list(tasks)
    while len(parts) < n:
        sizes = [t.num_items if isinstance(t, DocumentBatch) else 0 for t in parts]
        at = max(range(len(parts)), key=lambda i: sizes[i], default=-1)
        if at < 0 or sizes[at] < 2:
            break
        middle = sizes[at] // 2
        batch = parts[at]
        assert isinstance(batch, DocumentBatch)
        parts[at : at + 1] = [batch.take(np.arange(middle)), batch.take(np.arange(middle, sizes[at]))]
    return parts


def _run_chunk(
    stage: ProcessingStage[Any, Any],
    label: str,
    tasks: list[Task[Any]],
    book: StageBook,
    notes: UnitNotes,
    is_last: bool,
) -> list[Task[Any]]:
    parents = [t for t in tasks if isinstance(t, DocumentBatch)]
    _number(parents, tuple(stage.input_columns()))
    before, stage_input = _identities(parents), StageInput(parents)
    book.into.add(len(before[0]), hash128.sum128(*before))
    stage._open_notes(_counter(book, label, len(before[0]), notes.score_collector))
    try:
        results = stage.process_batch(tasks)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # sys.exit() in a stage, a panic in a library: a mistake of the stage
        raise StageFailure(label, exc) from exc
    finally:
        reported = stage._take_notes()
    if isinstance(results, Task):
        results = [results]
    parents = [p.as_read for p in parents]  # whatever the stage put into the very batch it was given
    results = _settle_results(results, label, parents, book)
    drops = reported.labelled_drops(stage.name, label)
    documents = [r for r in results if isinstance(r, DocumentBatch)]
    _note_survivors(documents, label, before, book, notes.score_collector)
    for batch in (*parents, *documents):
        batch.forget_frames()
    notes.read(label, reported.input)
    bad = reported.bad_by_serial()
    if bad:
        _quarantine_bad(bad, label, parents, documents, before, book, notes.quarantine)
    is_sink = is_last and (stage.is_sink_stage or any(isinstance(r, FileGroupTask) for r in results))
    dropped = _account(book, label, before, documents, drops, list(bad), is_sink)
    if notes.samples is not None:
        notes.samples.note_dropped(stage_input.batches, before, label, dropped)
    for serials, note in dropped:
        identity = hash128.sum128(*before, serials)
        # In this order: examples are some of those whose ids were looked up.
        notes.rejections.add(stage_input.batches, serials, label, note.reason, note.values, note.threshold, note.ids)
        book.drop(
            note.reason, len(serials), identity, stage_input.n_bytes(serials), stage_input.examples(serials, note.ids)
        )
        if notes.token_field is not None and (n := stage_input.n_tokens(serials, notes.token_field)) is not None:
            book.count({DROPPED_TOKENS + note.reason: n})
    return results


def _settle_results(
    results: Sequence[Task[Any]] | None, label: str, parents: Sequence[DocumentBatch], book: StageBook
) -> list[Task[Any]]:
    """Return the tasks that a stage returned, without those it gave up, each batch with its lineage."""
    if any(isinstance(result, (NoneTask, FailedTask)) for result in results or ()):
        assert results is not None
        n_failed = sum(isinstance(result, FailedTask) for result in results)
        book.count({GIVEN_UP: n_failed} if n_failed else {})
        results = [result for result in results if not isinstance(result, (NoneTask, FailedTask))]
    results = _apart(results or ())
    for result in results:
        if not isinstance(result, Task):
            raise StageFailure(
                label,
                PipelineError(f"process() must return a task, a list of tasks or None, got {type(result).__name__}"),
            )
        if isinstance(result, DocumentBatch) and result.lineage is None:
            try:
                result.settle()
                _take_in(result, parents)
            except Exception as exc:  # a table or frame that cannot be documents
                raise StageFailure(label, exc) from exc
    return results


def _apart(results: Sequence[Task[Any]]) -> list[Task[Any]]:
    """Return the results with a copy of each batch that comes a second time: each has an identity of its own."""
    apart: list[Task[Any]] = []
    seen: set[int] = set()
    for result in results:
        if isinstance(result, DocumentBatch) and id(result) in seen:
            result = result.copy()
        seen.add(id(result))
        apart.append(result)
    return apart


def _note_survivors(
    documents: Sequence[DocumentBatch], label: str, before: Identity, book: StageBook, collector: ScoreCollector
) -> None:
    """Count documents that cannot be traced, and keep the scores of those that stayed."""
    if n_new := sum(int((d.serial < 0).sum()) for d in documents if d.is_adopted):
        book.count({UNTRACED: n_new})
    if documents:
        serials = np.concatenate([d.serial for d in documents])
        collector.note_survivors(label, serials[serials >= 0], before[0])


def _quarantine_bad(
    bad: Mapping[int, str],
    label: str,
    parents: Sequence[DocumentBatch],
    documents: Sequence[DocumentBatch],
    before: Identity,
    book: StageBook,
    quarantine: Quarantine,
) -> None:
    """Quarantine the documents that a stage reported as bad (reasons by serial) and that really did not come out."""
    returned = set(np.concatenate([d.serial for d in documents]).tolist()) if documents else set()
    for batch in parents:
        at = np.array([i for i, s in enumerate(batch.serial.tolist()) if s in bad and s not in returned], np.int64)
        if len(at):
            serials = batch.serial[at]
            book.quarantined.add(len(at), hash128.sum128(*before, serials))
            quarantine(batch.take(at), label, [bad[s] for s in serials.tolist()])


def _counter(book: StageBook, label: str, n: int, collector: ScoreCollector) -> Callable[[str, Any, Any], None]:
    """Return the function that a stage calls with scores.

    It counts them, and keeps those of a rule's documents.
    """
    collector.begin(n)

    def counter(name: str, scores: Any, serials: Any = None) -> None:
        numbers = as_numbers(scores)
        count(numbers, book.scores.setdefault(name, Histogram()))
        if serials is not None:
            collector.note(label, name, serials, numbers, is_whole(scores))

    return counter


def _take_in(result: DocumentBatch, parents: Sequence[DocumentBatch]) -> None:
    """Assign its lineage to a batch that the stage built from a table or frame."""
    if not parents:
        _root(result, is_new=True)
    else:
        trace_returned(result, parents_of(result, parents))


def _root(batch: DocumentBatch, is_new: bool = False) -> None:
    """Make a batch without underlying records its own origin.

    `is_new`: none of the documents that the stage got is among its own.
    """
    batch.set_origin(TableBlock(batch.traced_table().replace_schema_metadata(None)), is_new)


def _number(batches: Sequence[DocumentBatch], expected: tuple[str, ...]) -> None:
    """Assign fresh row ids, unique among the batches that a stage sees together, and add requested columns."""
    at = 0
    for batch in batches:
        batch.number(at)
        batch.expected = expected
        at += batch.num_items


def _identities(batches: Sequence[DocumentBatch]) -> Identity:
    pairs = [b.identity for b in batches if b.is_identified]
    if not pairs:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])


def _account(
    book: StageBook,
    label: str,
    before: Identity,
    results: list[DocumentBatch],
    notes: Sequence[DropNote],
    quarantine: Sequence[int],
    is_sink: bool = False,
) -> list[tuple[np.ndarray[Any, Any], DropNote]]:
    """Account for each document by serial: kept once, copied, or gone; rows without a serial are new.

    Returns the dropped documents with the reasons, which the caller enters into the book. `quarantine`: those in
    quarantine. `is_sink`: the stage wrote what it neither returned nor dropped for a reason; that counts as kept.
    """
    n = len(before[0])
    serials = np.concatenate([b.serial for b in results]) if results else np.empty(0, np.int64)
    times = np.bincount(serials[serials >= 0], minlength=n) if n else np.zeros(0, np.int64)
    survives = times == 1
    n_new = int((serials < 0).sum())
    copied, dropped_mask = times > 1, times == 0
    dropped_mask[list(quarantine)] = False
    book.out.add(int(survives.sum()), hash128.sum128(*before, np.flatnonzero(survives)))
    replaced = copied | dropped_mask if n_new else copied
    book.consumed.add(int(replaced.sum()), hash128.sum128(*before, np.flatnonzero(replaced)))
    dropped: list[tuple[np.ndarray[Any, Any], DropNote]] = []
    if not n_new:
        for note in notes:  # a document goes once, for the first reason given, and only if it is really gone
            serials = np.asarray(note.serials, np.int64)
            chosen = np.flatnonzero(dropped_mask[serials])
            values, ids = (_values_at(column, chosen) for column in (note.values, note.ids))
            dropped.append((serials[chosen], note._replace(values=values, ids=ids)))
            dropped_mask[serials] = False
        if is_sink:
            book.out.add(int(dropped_mask.sum()), hash128.sum128(*before, np.flatnonzero(dropped_mask)))
        else:
            dropped.append((np.flatnonzero(dropped_mask), DropNote((), label, None, "")))
    ordinal = 0
    for batch in results:
        ordinal = _identify_results(batch, survives, before, book, ordinal)
    return [(serials, note) for serials, note in dropped if len(serials)]


def _values_at(values: Any, at: np.ndarray[Any, Any]) -> list[Any] | None:
    """Return what was measured of some documents, as plain values if it is an array.

    Converted one by one, they would cost more than many a filter.
    """
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        return list(values[at].tolist())
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return list(values.take(pa.array(at)).to_pylist())
    return [values[i] for i in at.tolist()]


def _identify_results(
    batch: DocumentBatch, survives: np.ndarray[Any, Any], before: Identity, book: StageBook, ordinal: int
) -> int:
    """Identify results: survivors keep their identity; copies and new rows derive one from their parents."""
    serial = batch.serial
    n = len(serial)
    hi, lo = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    parent = np.maximum(serial, 0)
    if len(before[0]):
        hi, lo = before[0][parent], before[1][parent]
        new = (serial < 0) | ~survives[parent]
    else:
        new = np.ones(n, bool)
    at = np.flatnonzero(new)
    if len(at):
        if (serial[at] < 0).any():
            new_rows = at[serial[at] < 0]
            total = hash128.sum128(*before)
            hi[new_rows], lo[new_rows] = np.uint64(total >> 64), np.uint64(total & (2**64 - 1))
        mixed = hash128.mix_rows(hi[at], lo[at], np.arange(ordinal + 1, ordinal + 1 + len(at), dtype=np.int64))
        hi[at], lo[at] = mixed
        book.derived.add(len(at), hash128.sum128(*mixed))
    batch.identify(hi, lo)
    return ordinal + len(at)
