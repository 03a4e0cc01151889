"""Processes one unit in a worker: read, run the segment's stages, write staged files, report.

The same code runs in worker processes and in the in-process executor. It knows nothing of sockets, caps or commits:
`send` passes a message to the supervisor, `wait` (feeding only) blocks until the supervisor wants the next block.
"""

from __future__ import annotations

import copy
import gc
import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import secrets
from tamis.engine import activity as doing
from tamis.engine.activity import READING, WRITING
from tamis.engine.histograms import Histogram
from tamis.engine.job import Job
from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.messages import (
    Done,
    Failure,
    FailureKind,
    Read,
    Report,
    RetainedMemory,
    SetUp,
    StagedFile,
    UnitMessage,
)
from tamis.engine.samples import SampleLimits
from tamis.engine.schema import CoveredRange, FileKind
from tamis.engine.units import Mode, PieceKind, Rewrite, Unit
from tamis.engine.worker import binning, handover
from tamis.engine.worker import write as output
from tamis.engine.worker.apply import (
    SetupFailure,
    StageFailure,
    StageUsage,
    UnitNotes,
    identify,
    narrow,
    run_stage,
    try_alone,
)
from tamis.engine.worker.blocks import BlockFault
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.worker.failures import NO_DEBUGGER, failure, failure_of, is_debugger_exit, is_machine_failure
from tamis.engine.worker.feed import feed
from tamis.engine.worker.fields import FieldCheck
from tamis.engine.worker.node import WorkerMetadata
from tamis.engine.worker.probe import StageProbe
from tamis.engine.worker.quarantine import QuarantinedInput, account_bad, account_input, write_quarantine
from tamis.engine.worker.read import Contents, ReadOptions, TooLarge, read_pieces
from tamis.engine.worker.record_keeper import RecordKeeper
from tamis.engine.worker.regroup import regroup
from tamis.engine.worker.rejections import Rejections
from tamis.engine.worker.sampling import SampleCollector, SamplePlan, describe_samples
from tamis.engine.worker.survivor_scores import ScoreCollector
from tamis.engine.worker.value_files import write_by_values
from tamis.engine.worker.write import send_outputs
from tamis.errors import FormatError, InputChanged, PipelineError, UsageError
from tamis.failures import is_memory_failure
from tamis.formats.hive import Folders
from tamis.formats.jsonl.record_index import RecordIndex
from tamis.formats.registry import TABLES, is_table, table_format
from tamis.kernels.records import hash128
from tamis.memory import meter
from tamis.memory.device_limits import LOCK_FOLDER, lacked_device_memory
from tamis.memory.release import PeakMeter
from tamis.stages.io import ReadHints
from tamis.stages.notes import InputNotes
from tamis.tasks import MISSING, ROW_ID, DocumentBatch, FileGroupTask, Task
from tamis.tasks.columns.python_values import python_values
from tamis.tasks.file_group import infer_dataset_name

_POSITION = 0x706F736974696F6E  # a salt: hashes of positions are unlike those of derived documents
_DECLARED = "declared schema"  # the book of documents that do not fit the schema that the writer was given
Send = Callable[[UnitMessage], None]


class MissingField(Exception):
    """A stage reads a field that no document has: the run ends, whatever the partition."""


class UnitRunner:
    """Stages of a job, set up once per worker and segment."""

    def __init__(self, job: Job, config: WorkerConfig, inline: bool = False) -> None:
        """Prepare for a job. `inline`: in the caller's process, to which exceptions of stages are passed on."""
        self.job, self.config, self._inline = job, config, inline
        secrets.learn(*job.stages, job.source, job.reader, job.writer)  # what stages raise may contain them
        self._ready: set[int] = set()
        self._passed: set[str] = set()  # labels of stages that have processed a document
        self._setup_s = 0.0  # of the unit that is being done
        self._uses = StageUsage()  # of the unit that is being done
        self._sample_limits: SampleLimits | None = None  # of this unit
        self._sample_plan: SamplePlan | None = None
        self._first_threads = 0  # when the first unit began
        self._mark = os.urandom(4).hex()
        self._bounded = {(r.stage, r.score) for r in job.rules() if r.at_least or r.at_most}
        self._record_index: RecordIndex | None = None
        self._fields = FieldCheck(job)
        self._input_schema: tuple[pa.Schema | None] | None = None

    def run(
        self, unit: Unit, fence: int, send: Send, wait: Callable[[], int], samples: SampleLimits | None = None
    ) -> Report:
        """Run a unit and return the report on it. `samples`: the limits of those to take."""
        report: Report
        # A name that no other process can take: one on a machine that was cut off may write yet, and numbers begin anew
        # with every run.
        mark = f"{unit.id}.{fence}.{os.getpid()}-{self._mark}"
        base = os.path.join(self.config.staged, f"u{mark}")
        started_s, self._setup_s = time.perf_counter(), 0.0
        self._sample_limits = samples
        self._uses, self._first_threads = StageUsage(), self._first_threads or meter.n_threads()
        doing.note(WRITING if unit.mode is Mode.REWRITE else READING)
        try:
            report = self._run_mode(unit, mark, base, send, wait)
            if self.config.output_url:
                doing.note(WRITING)
                report = replace(report, files=send_outputs(report.files, unit, self.config.output_url))
        except TooLarge as exc:
            report = exc.report
        except MissingField as exc:
            report = Failure(FailureKind.SETUP, error=secrets.hide(str(exc)), is_usage=True)
        except SetupFailure as exc:
            report = self._report_setup_failure(unit, exc)
        except InputChanged as exc:
            report = failure(FailureKind.INPUT, exc)
        except StageFailure as exc:
            report = self._report_stage_failure(unit, exc)
        except BlockFault as exc:
            report = self._report_failure(FailureKind.DISK, exc, "")
        except OSError as exc:
            # Without a number: Arrow's, about a value or type that a format cannot hold.
            kind = FailureKind.ERROR if type(exc) is OSError and exc.errno is None else FailureKind.DISK
            report = self._report_failure(kind, exc, doing.now())
        except Exception as exc:
            report = self._report_failure(FailureKind.ERROR, exc, doing.now())
        doing.note("")
        if isinstance(report, Done | Failure):
            seconds = time.perf_counter() - started_s
            return replace(report, seconds=round(seconds, 6), setup_s=round(self._setup_s, 6))
        return report

    def _run_mode(self, unit: Unit, mark: str, base: str, send: Send, wait: Callable[[], int]) -> Done:
        """Do what the unit's mode says; files begin with `base`, blocks are named by `mark`."""
        if unit.mode is Mode.FEED:
            blocks = os.path.join(self.config.scratch, f"f{mark}")
            options = replace(self._read_options(unit, send), max_bytes=0)
            return feed(unit, blocks, self.config, base, send, wait, options)
        if unit.mode is Mode.QUARANTINE:
            return self._quarantine(unit, base)
        if unit.mode is Mode.REWRITE:
            return self._rewrite(unit, base)
        return self._process(unit, base, send)

    def _report_failure(self, kind: FailureKind, cause: BaseException, stage: str) -> Failure:
        return failure_of(kind, cause, stage, self._uses.rows, self._first_threads)

    def _report_setup_failure(self, unit: Unit, failed: SetupFailure) -> Failure:
        """Return the report on a stage that could not be set up; raise it again if it is for the caller of the run."""
        kind = self._kind_of_setup_failure(unit.segment, failed.cause)
        if kind is FailureKind.SETUP and self._passes_on(failed.cause):
            raise failed
        return _refused(failed.cause, replace(failure(kind, failed.cause, failed.stage), in_setup=True))

    def _report_stage_failure(self, unit: Unit, failed: StageFailure) -> Failure:
        """Return the report on a stage that raised; raise it again if it is for the caller of the run."""
        kind = _kind_of_failure(failed.cause)
        if kind is FailureKind.ERROR and self._passes_on(failed.cause):
            raise failed
        report = self._report_failure(kind, failed.cause, failed.stage)
        if is_debugger_exit(failed.cause):
            return replace(report, kind=FailureKind.SETUP, is_usage=True, error=NO_DEBUGGER)
        if report.kind is FailureKind.ERROR:
            report = replace(report, n_failed_alone=self._count_failures(unit, failed))
        return _refused(failed.cause, report)

    def _count_failures(self, unit: Unit, failed: StageFailure) -> int:
        """Return how many documents a stage fails on one by one, if it has not passed any so far."""
        tasks, failed.tasks = failed.tasks, ()
        if (
            failed.n_failed_alone
            or unit.n_failures
            or failed.stage in self._passed
            or self.config.fail_fast is not None
            or isinstance(failed.cause, FormatError)
        ):
            return failed.n_failed_alone
        alone = try_alone(self.job.stages[self.job.labels.index(failed.stage)], failed.stage, tasks)
        return alone.n_failed_alone if alone is not None else 0

    def _passes_on(self, cause: BaseException) -> bool:
        """Return True if an exception of a stage is to reach the caller of the run.

        Input that turns out to be unreadable when a stage asks for it is no mistake of the stage.
        """
        if not self._inline or is_memory_failure(cause) or isinstance(cause, FormatError):
            return False
        return self.config.fail_fast is not False or is_debugger_exit(cause)

    def _kind_of_setup_failure(self, segment: int, cause: BaseException) -> FailureKind:
        if self.job.segments[segment].resources.requires_gpu and lacked_device_memory(cause):
            return FailureKind.DEVICE
        return FailureKind.MEMORY if is_memory_failure(cause) else FailureKind.SETUP

    def setup(self, segment: int) -> None:
        """Set up the segment's stages, once."""
        if segment in self._ready:
            return
        part = self.job.segments[segment]
        for label, stage in zip(
            self.job.labels[part.first : part.last], self.job.stages[part.first : part.last], strict=True
        ):
            os.environ.update((stage.runtime_env or {}).get("env_vars", {}))
            if part.resources.requires_gpu:
                os.environ[LOCK_FOLDER] = self.config.scratch
            doing.note(doing.setting_up(label))
            try:
                stage.setup(WorkerMetadata(str(os.getpid())))
            except KeyboardInterrupt:
                raise
            except BaseException as exc:
                raise SetupFailure(doing.setting_up(label), exc) from exc
        if part.resources.requires_gpu:
            # What a model's libraries are made of is half a million objects, which would be looked through after every
            # unit.
            gc.collect()
            gc.freeze()
        self._ready.add(segment)

    def _set_up(self, segment: int, send: Send) -> None:
        """Set up a segment once and report what that took, which decides how many workers there can be."""
        if segment in self._ready:
            return
        if not self.job.sets_up(self.job.segments[segment]):
            self.setup(segment)
            return
        before = meter.rss_anon() or 0
        watch = PeakMeter().start()
        floor = watch.peak_bytes
        try:
            self.setup(segment)
        finally:
            peak = watch.stop()
        retained = (meter.rss_anon() or 0) - before
        send(SetUp(max(0, retained), max(0, peak - floor)))

    def teardown(self) -> None:
        for segment in self._ready:
            part = self.job.segments[segment]
            for stage in self.job.stages[part.first : part.last]:
                stage.teardown()
        self._ready.clear()

    # -- the four modes -----------------------------------------------------------------------------------------------
    def _process(self, unit: Unit, base: str, send: Send) -> Done:
        part = self.job.segments[unit.segment]
        started_s = time.perf_counter()
        self._set_up(unit.segment, send)
        self._setup_s = time.perf_counter() - started_s
        doing.note(READING)
        ledger = Ledger(stages=[StageBook(label) for label in self.job.labels[part.first : part.last]])
        quarantine: list[QuarantinedInput] = []
        keep_hashes = self.job.reader is not None and self.job.reader.hints.keep_hashes
        rejections, collector = Rejections(self.config.keep_rejected, keep_hashes), ScoreCollector(self._bounded)
        probe = StageProbe(base + ".probe") if unit.probe else None

        def aside(batch: DocumentBatch, stage: str, reasons: list[str]) -> None:
            if keeper is not None:
                keeper.note_quarantined(batch)
            ledger.quarantined.add(batch.num_items, hash128.sum128(*batch.identity))
            quarantine.extend(_raw_entries(batch, unit, stage, reasons))

        def read(stage: str, noted: InputNotes) -> None:
            if unit.sampling_step == 0:  # later sampling steps read the same files again
                quarantine.extend(account_input(stage, noted, ledger))

        keeper, began_s = self._record_keeper(unit), time.perf_counter()
        tasks, contents = self._load(unit, ledger, quarantine, send, keeper)
        reading_s = round(time.perf_counter() - began_s, 6)
        samples = self._sample_collector(contents)
        notes = UnitNotes(rejections, self._uses, collector, aside, read, samples)
        tasks = self._as_read(tasks)
        send(Read(contents.n_records, contents.cut, contents.decoded_bytes, contents.largest_record))
        n_records = contents.n_records  # before the probe lets the documents go
        if probe is not None:
            contents.batches = []
            tasks = probe.after(READING, tasks, rejections)
        for index, book in enumerate(ledger.stages, part.first):
            tasks = self._run_stage(index, book, tasks, notes, unit.trial == book.name)
            if probe is not None:
                tasks = probe.after(book.name, tasks, rejections, collector.n_bytes)
        doing.note(WRITING)
        handover_file, retained = None, None
        if unit.segment + 1 < len(self.job.segments):
            documents = _documents(tasks, self.job, _PASSED_ON)
            handover_file = handover.save(documents, base + ".arrow", self.config.block_url)
            files = collector.write(documents, base, is_last=False)
            documents.clear()
        else:
            files = self._write(tasks, base, ledger, collector, samples)
        if keeper is not None:
            keeper.store(self.config.inputs, self.config.max_record_bytes)
        if samples is not None:
            samples.finish()
        if probe is not None:
            tasks.clear()
            probe.mark(WRITING)
            probe.restore(rejections)
            retained = RetainedMemory(probe.retained)
        files += write_quarantine(quarantine, base) + rejections.write(base)
        files += samples.write(base) if samples is not None else []
        done = _done(contents, files, ledger)
        first_bad = quarantine[0].describe() if quarantine else ""
        return replace(
            done,
            n_records=n_records,
            handover=handover_file,
            stages=notes.uses.rows,
            retained=retained,
            first_bad=first_bad,
            reading_s=reading_s,
        )

    def _load(
        self,
        unit: Unit,
        ledger: Ledger,
        quarantine: list[QuarantinedInput],
        send: Send,
        keeper: RecordKeeper | None,
    ) -> tuple[list[Task[Any]], Contents]:
        """Read the input of a unit, or the documents that the segment before it passed on."""
        if unit.segment == 0:
            tasks, contents = self._source(unit, ledger, quarantine, send, "" if keeper is None else keeper.field)
        else:
            tasks, contents = handover.load(unit.handover, unit.handover_rows, unit.handover_check)
        if keeper is not None:
            keeper.begin(contents.kept, contents.batches)
        return tasks, contents

    def _record_keeper(self, unit: Unit) -> RecordKeeper | None:
        """Return what keeps the records of a unit for later passes; None if they are not to be kept."""
        folder = None if self.job.reader is None else self.job.reader.hints.keep_records_in
        if folder is None or unit.segment > 0 or len(self.config.windows) > 1:
            return None
        part = self.job.segments[0]
        return RecordKeeper(folder, self.job.stages[part.first : part.last])

    def _source(
        self, unit: Unit, ledger: Ledger, quarantine: list[QuarantinedInput], send: Send, keep_without: str = ""
    ) -> tuple[list[Task[Any]], Contents]:
        """Return the tasks of the first segment and what was read for them."""
        kind = unit.pieces[0].kind
        if kind is PieceKind.START:
            tasks = [copy.deepcopy(self.job.initial[p.file]) for p in unit.pieces]  # an attempt may have changed them
            return tasks, Contents(covered=[CoveredRange(p.file, 0, 1, True) for p in unit.pieces])
        if kind is PieceKind.FILES:
            covered = [CoveredRange(p.file, 0, p.end, True) for p in unit.pieces]
            return [FileGroupTask(self.job.name, [p.path for p in unit.pieces])], Contents(covered=covered)
        contents = self._read_documents(unit, ledger, quarantine, send, keep_without)
        return list(contents.batches), contents

    def _sample_collector(self, contents: Contents) -> SampleCollector | None:
        if self._sample_limits is None:
            return None
        self._sample_plan = self._sample_plan or SamplePlan(self.job)
        return SampleCollector(self._sample_plan, self._sample_limits, contents.n_records, contents.decoded_bytes)

    def _run_stage(
        self, index: int, book: StageBook, tasks: list[Task[Any]], notes: UnitNotes, is_trial: bool
    ) -> list[Task[Any]]:
        """Return the tasks after a stage. `is_trial`: documents are tried one by one first."""
        doing.note(book.name)
        stage = self.job.stages[index]
        failed = try_alone(stage, book.name, tasks, True) if is_trial else None
        if failed is not None:
            raise failed
        is_last = index + 1 == len(self.job.stages)
        notes.token_field = self.job.token_field_before(index)
        tasks = run_stage(stage, book.name, tasks, book, notes, self.job.has_own_tasks, is_last)
        if book.into.n:
            self._passed.add(book.name)
        narrow(tasks)
        return tasks

    def _read_options(self, unit: Unit, send: Send, keep_without: str = "") -> ReadOptions:
        """Return how the unit's pieces are read: as the reader says, within the limits of the worker."""
        hints = ReadHints() if self.job.reader is None else self.job.reader.hints
        if self._record_index is None and hints.record_index is not None:
            self._record_index = RecordIndex(hints.record_index)
        return ReadOptions(
            self.config.max_record_bytes,
            unit.max_bytes,
            self.config.inputs,
            self._columns(),
            hints.all_valid,
            self._record_index,
            hints.keep_records_in,
            keep_without,
            hints.kept_records,
            on_large=lambda n, cut, size: send(Read(n, cut, largest_record=size)),
        )

    def _read_documents(
        self, unit: Unit, ledger: Ledger, quarantine: list[QuarantinedInput], send: Send, keep_without: str = ""
    ) -> Contents:
        """Read the unit's pieces as the batches that the first stage gets."""
        reader, options = self.job.reader, self._read_options(unit, send, keep_without)
        contents = read_pieces(unit.pieces, self.job.keys(), options, describe=unit.describe)
        contents.batches = [self._with_folder_values(batch, unit) for batch in contents.batches]
        self._check_fields(contents.batches)
        ledger.read_bytes = contents.stored_bytes or contents.decoded_bytes
        contents.batches = self._account_input(contents, unit, ledger, quarantine)
        for batch in contents.batches:
            binning.count(binning.lengths(batch), ledger.lengths.setdefault("in", Histogram()))
        if reader is not None and reader.fields is not None:
            contents.batches = [b.select(list(reader.fields)) for b in contents.batches]
        per_task = self.job.partitioning.files_per_partition if self.job.partitioning is not None else None
        if per_task and self.job.tasks_together > 1:
            contents.batches = [part for b in contents.batches for part in _by_files(b, unit, per_task)]
        if self.job.user_stages():  # which may look at these
            for batch in contents.batches:
                _name_sources(batch, unit, self._dataset)
        return contents

    def _check_fields(self, batches: list[DocumentBatch]) -> None:
        """Raise MissingField if documents lack a field that the job needs."""
        try:
            of_folders = self._folders.names if self._folders is not None else ()
            self._fields.check(batches, self.config.inputs, of_folders)
        except PipelineError as exc:
            raise MissingField(str(exc)) from exc

    @cached_property
    def _folders(self) -> Folders | None:
        """The fields that folders of the input name; None if there are none."""
        if self.job.partitioning is None:
            return None
        entries = self.job.partitioning.file_paths
        folders = Folders([entries] if isinstance(entries, str) else entries, self.config.inputs)
        return folders if folders.names else None

    def _with_folder_values(self, batch: DocumentBatch, unit: Unit) -> DocumentBatch:
        """Return documents with the fields that the folders of their files name, but for those that have these."""
        if self._folders is None or not batch.num_items:
            return batch
        numbers, rows = np.unique(batch.places()[0], return_inverse=True)
        by_file = {p.file: p.input_path for p in unit.pieces}
        values = [self._folders.values_of(os.fsdecode(by_file[number])) for number in numbers.tolist()]
        for name in dict.fromkeys(name for each in values for name in each):
            column = pa.array([each.get(name) for each in values]).take(pa.array(rows))
            if not batch.has_field(name):
                batch = batch.with_column(name, column)
            elif (lacks := batch.kinds(name) == MISSING).any():
                batch = batch.with_values(name, lacks, column.filter(pa.array(lacks)))
        return batch

    @cached_property
    def _dataset(self) -> str:
        """The name of the input: the folder of its first file."""
        return (
            infer_dataset_name([os.fsdecode(path) for path in itertools.islice(self.config.inputs, 1)]) or self.job.name
        )

    def _as_read(self, tasks: list[Task[Any]]) -> list[Task[Any]]:
        """Return documents as the tasks that the reader emits.

        Those of a reader of images are batches of images; frames of others have the columns' types.
        """
        kind = DocumentBatch if self.job.reader is None else self.job.reader.batch
        if kind is not DocumentBatch:
            return [kind.like(t) if isinstance(t, DocumentBatch) else t for t in tasks]
        if (types := self.job.column_types()) is not None:
            for task in tasks:
                if isinstance(task, DocumentBatch):
                    task.column_types = types
        return tasks

    def _columns(self) -> tuple[str, ...] | None:
        """Return the columns of Parquet files to read; all, unless the reader names fields."""
        reader = self.job.reader
        return tuple(reader.fields) if reader is not None and reader.fields is not None else None

    def _account_input(
        self, contents: Contents, unit: Unit, ledger: Ledger, quarantine: list[QuarantinedInput]
    ) -> list[DocumentBatch]:
        """Identify the documents of this sampling step and enter what was read into the books.

        Bad input belongs to the first step; later ones meet it again and do not report it.
        """
        if unit.sampling_step == 0:
            ledger.n_blank_lines = contents.n_blank
            ledger.skip_records(contents.skipped)
            quarantine += contents.bad
            account_bad(contents.bad, ledger)
        for batch in contents.batches:
            batch.dataset_name = self.job.name
            identify(batch)
        return [self._sample(batch, unit.sampling_step, ledger) for batch in contents.batches]

    def _sample(self, batch: DocumentBatch, step: int, ledger: Ledger) -> DocumentBatch:
        """Return the documents of this sampling step alone, chosen by their content hash.

        Every step reads all of the input, and every record is counted once: the first step counts them all, and
        those that it does not choose as not sampled; a later step takes the ones it chooses from these.
        """
        low, high = self.config.windows[step]
        if step == 0:
            ledger.records.add(batch.num_items, hash128.sum128(*batch.identity))
            _add_positions(batch, ledger)
        if (low, high) == (0.0, 1.0):
            return batch
        in_window = _in_window(batch.identity[0], low, high)
        at = np.flatnonzero(in_window if step else ~in_window)
        sign = -1 if step else 1
        ledger.not_sampled.add(sign * len(at), sign * hash128.sum128(*batch.identity, at))
        return batch.filter(in_window)

    def _write(
        self,
        tasks: list[Task[Any]],
        base: str,
        ledger: Ledger,
        collector: ScoreCollector,
        samples: SampleCollector | None,
    ) -> list[StagedFile]:
        spec = self.config.output
        files = [StagedFile(p, FileKind.LISTED) for t in tasks if isinstance(t, FileGroupTask) for p in t.data]
        if ledger.stages and (files or self.job.stages[-1].is_sink_stage):
            _account_own_files(tasks, ledger)
        others = [t for t in tasks if not isinstance(t, FileGroupTask)]
        if self.job.writer is None:
            files += output.write_tasks([t for t in others if not isinstance(t, DocumentBatch)], base, self.job.key)
            others = [t for t in others if isinstance(t, DocumentBatch)]
        documents = _documents(others, self.job)
        if self._is_declared:
            documents = self._fit_schema(documents, ledger)
        if samples is not None:
            samples.note_written(documents)
        return (
            files
            + output.write_documents(documents, base, spec, ledger, self._model())
            + collector.write(documents, base, is_last=True)
        )

    def _model(self) -> pa.Schema | None:
        """Return the schema of the first input file, if rows are read and written: the output is to look like it."""
        if self.config.output.format not in TABLES or self.job.reader is None or not self.config.inputs:
            return None
        if self._input_schema is None:
            first = next(iter(self.config.inputs))
            is_rows = all(name in TABLES for name in self.job.reader.formats) or is_table(first)
            try:
                self._input_schema = (table_format(first).read_schema(first) if is_rows else None,)
            except (OSError, pa.ArrowException, FormatError) as exc:  # the reader reports what is wrong with it
                if is_memory_failure(exc):
                    raise
                self._input_schema = (None,)
        return self._input_schema[0]

    def _fit_schema(self, documents: list[DocumentBatch], ledger: Ledger) -> list[DocumentBatch]:
        """Drop documents that do not fit the declared schema, with the reason, as one more stage of the books."""
        book = StageBook(_DECLARED)
        assert self.config.output.schema is not None
        fitting = []
        for batch in documents:
            book.into.add(batch.num_items, hash128.sum128(*batch.identity))
            fits, bad = output.check_declared(batch, self.config.output.schema)
            book.out.add(fits.num_items, hash128.sum128(*fits.identity))
            for row, reason in bad:
                at = np.array([row])
                book.drop(reason, 1, hash128.sum128(batch.identity[0][at], batch.identity[1][at]))
            fitting.append(fits)
        ledger.stages.append(book)
        return fitting

    def _quarantine(self, unit: Unit, base: str) -> Done:
        """Set all documents of the unit aside, unprocessed by this segment, with their raw bytes."""
        ledger = Ledger(stages=[StageBook(label) for label in self._labels_from(unit.segment)])
        labels, stage = self._quarantine_labels(unit.segment), unit.stage
        quarantine: list[QuarantinedInput] = []
        if unit.segment > 0:
            tasks, contents = handover.load(unit.handover, unit.handover_rows, unit.handover_check)
            documents = _documents(tasks, self.job)
            stage = stage if stage in labels else labels[0]  # they have been read
        else:
            keeper = self._record_keeper(unit)
            limits = ReadOptions(
                self.config.max_record_bytes,
                0,
                self.config.inputs,
                self._columns(),
                keep_without="" if keeper is None else keeper.field,
                kept_records=None if self.job.reader is None else self.job.reader.hints.kept_records,
            )
            contents = read_pieces(unit.pieces, [], limits)
            ledger.read_bytes = contents.decoded_bytes
            documents = self._account_input(contents, unit, ledger, quarantine)
            if keeper is not None:
                keeper.begin(contents.kept, contents.batches)
                for batch in documents:
                    keeper.note_quarantined(batch)
                keeper.store(self.config.inputs, self.config.max_record_bytes)
        for batch in documents:
            ledger.quarantine(stage, batch.num_items, hash128.sum128(*batch.identity), labels)
            quarantine += _raw_entries(batch, unit)
        return _done(contents, write_quarantine(quarantine, base), ledger)

    def _labels_from(self, segment: int) -> list[str]:
        """Return the books of this segment and of those after it."""
        labels = self.job.labels[self.job.segments[segment].first :]
        return [*labels, _DECLARED] if self._is_declared else labels

    def _quarantine_labels(self, segment: int) -> list[str]:
        """Return the stages in which a document of this segment may be quarantined.

        Includes writing, if what the segment writes is the output.
        """
        part = self.job.segments[segment]
        labels = self.job.labels[part.first : part.last]
        if segment + 1 < len(self.job.segments):
            return labels
        return [*labels, _DECLARED, WRITING] if self._is_declared else [*labels, WRITING]

    @property
    def _is_declared(self) -> bool:
        return self.config.output.schema is not None and self.config.output.format in TABLES

    def _rewrite(self, unit: Unit, base: str) -> Done:
        work, spec = unit.rewrite, self.config.output
        assert work is not None
        if work.schemas:
            return Done(schema=output.join_files(work.schemas, list(spec.fields or ())))
        if work.samples:
            return Done(files=describe_samples(SamplePlan(self.job), work.samples, base))
        if work.regroups:
            files = self._regroup(work, base)
        else:
            files = [output.recast_table(work.paths[0], base + ".out", work.union, spec, self._model())]
        return Done(sum(f.rows for f in files), sum(f.n_bytes or 0 for f in files), files=files)

    def _regroup(self, work: Rewrite, base: str) -> list[StagedFile]:
        """Write other files of the same records, in the order of the old ones."""
        paths = iter(work.paths)
        files: list[StagedFile] = []
        for i, part in enumerate(work.regroups):
            own = list(itertools.islice(paths, part.n_old))
            write = write_by_values if part.partition_by else regroup
            files += write(own, part, f"{base}.g{i}" if i else base, self.config.output)
        return files


def _refused(cause: BaseException, report: Failure) -> Failure:
    """Return the report on a stage of Tamis that refuses how it was called: what to do is said, not where."""
    if not isinstance(cause, UsageError) or report.at or report.kind not in (FailureKind.ERROR, FailureKind.SETUP):
        return report
    return replace(report, is_usage=True, error=secrets.hide(str(cause))[:2000], trace="")


def _kind_of_failure(cause: BaseException) -> FailureKind:
    """Return the kind of failure of a stage that raised `cause`."""
    if is_machine_failure(cause):
        return FailureKind.DISK
    return FailureKind.INPUT if isinstance(cause, InputChanged) else FailureKind.ERROR


def _done(contents: Contents, files: list[StagedFile], ledger: Ledger) -> Done:
    return Done(contents.n_records, contents.decoded_bytes, contents.largest_record, contents.covered, files, ledger)


def _account_own_files(tasks: list[Task[Any]], ledger: Ledger) -> None:
    """Count what the last stage wrote by itself: documents that it took in and that no task holds, and its files."""
    last = ledger.stages[-1]
    ledger.written.merge(last.out)
    ledger.written.merge(last.derived)
    for task in tasks:
        if isinstance(task, DocumentBatch):  # written, and counted, by the engine
            ledger.written.add(-task.num_items, -hash128.sum128(*task.identity))
        elif isinstance(task, FileGroupTask):
            ledger.written_bytes += sum(os.path.getsize(path) for path in task.data if os.path.exists(path))


_WRITTEN = (
    "written; give documents (DocumentBatch) or files (FileGroupTask) to the writer, "
    "or leave the writer out to get the tasks back"
)
_PASSED_ON = (
    "passed on to another worker; give documents (DocumentBatch), or in streaming mode the next stage equal resources"
)


def _documents(tasks: list[Task[Any]], job: Job, how: str = _WRITTEN) -> list[DocumentBatch]:
    """Return the tasks as documents; raise PipelineError if one cannot be used in this way."""
    documents = []
    for task in tasks:
        if not isinstance(task, DocumentBatch):
            raise PipelineError(f"pipeline {job.name!r}: {type(task).__name__} cannot be {how}")
        documents.append(task)
    return documents


def _name_sources(batch: DocumentBatch, unit: Unit, dataset: str) -> None:
    """Set what users know of a task: its dataset, the files that its documents come from, and an id made of both."""
    paths = {p.file: os.fsdecode(p.input_path) for p in unit.pieces}
    files, offsets = batch.places()
    sources = [paths[f] for f in np.unique(files).tolist() if f in paths] or list(dict.fromkeys(paths.values()))
    group = FileGroupTask(dataset, sources)
    batch.dataset_name = dataset
    batch._metadata = {**batch._metadata, "source_files": sources}
    batch.task_id = f"{group.task_id}.{int(offsets[0]) if len(offsets) else 0}"


def _by_files(batch: DocumentBatch, unit: Unit, per_task: int) -> list[DocumentBatch]:
    """Split a batch into tasks of the documents of `per_task` files each."""
    order = {p.file: i // per_task for i, p in enumerate(unit.pieces)}
    if len(set(order.values())) < 2:
        return [batch]
    task = np.array([order.get(f, 0) for f in batch.places()[0].tolist()], np.int64)
    return [batch.take(np.flatnonzero(task == k)) for k in np.unique(task).tolist()]


def _raw_entries(
    batch: DocumentBatch, unit: Unit, stage: str = "", reasons: Sequence[str] = ()
) -> list[QuarantinedInput]:
    """Quarantine entries for whole documents: their place and their bytes.

    Stage and reasons are those of the unit, unless given.
    """
    lineage, by_file = batch.lineage, {p.file: p for p in unit.pieces}
    assert lineage is not None
    entries = []
    for i, (file, place) in enumerate(zip(*(p.tolist() for p in batch.places()), strict=True)):
        piece = by_file.get(file, unit.pieces[0])
        offset, position, raw = place, None, lineage.raw(i)
        if raw is not None:
            length, counted = len(raw), "bytes" if piece.kind is PieceKind.BYTES else "decoded bytes"
        else:
            row = batch.take(np.array([i])).traced_table().drop_columns([ROW_ID])
            document = {name: python_values(row.column(name))[0] for name in row.column_names}
            raw = json.dumps(document, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
            length, counted = 1, "rows"
            stored = lineage.stored_offset(i)
            if stored is not None:
                offset, position, length, counted = stored, place, len(raw), "bytes"
        reason = reasons[i] if reasons else unit.reason
        stage_name = stage or unit.stage
        entries.append(
            QuarantinedInput(
                piece.file,
                piece.input_path,
                offset,
                length,
                reason,
                stage_name,
                counted,
                raw=raw,
                position=position,
            )
        )
    return entries


def _add_positions(batch: DocumentBatch, ledger: Ledger) -> None:
    """Add hashes of (file, offset, content) of freshly read records to the sums of the ledger."""
    files, offsets = batch.places()
    if not len(files):
        return
    hi, lo = hash128.combine(*batch.identity, offsets.astype(np.uint64), files.astype(np.uint64), salt=_POSITION)
    starts = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
    for first, last in itertools.pairwise(starts):
        ledger.add_positions(int(files[first]), hash128.sum128(hi[first:last], lo[first:last]))


def _in_window(hi: np.ndarray[Any, Any], low: float, high: float) -> np.ndarray[Any, Any]:
    below = np.ones(len(hi), bool) if high >= 1.0 else hi < np.uint64(int(high * 2**64))
    return below & (hi >= np.uint64(int(low * 2**64)))
