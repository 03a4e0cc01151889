"""Observes a run while it works: events, samples, the record of settings, progress.

Covers: the run database and the monitor that fills it, the summary of events (budget/outcome.py), leaks, the state that
a progress display shows. Observing never fails a run: a full disk is reported by the run itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, cast

from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.monitor.monitor import Monitor, MonitoredRun, Watch
from tamis.engine.progress import Progress, ProgressState
from tamis.engine.run.budget.outcome import Outcome
from tamis.engine.run.console import Console
from tamis.engine.run.output.directory import Past
from tamis.engine.run.planning import ExecutionContext
from tamis.engine.run.run_result import RunResult
from tamis.engine.run_record import FILE as RECORD_FILE
from tamis.engine.run_record import PassRecord, RunCounts, RunRecorder, RunStatus
from tamis.engine.schema import EventKind, LeakReport, Manifest, ResultStatus, RunFacts, RunPlan
from tamis.engine.supervisor.actions import Action
from tamis.engine.supervisor.state import Config
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.workers_interface import Workers
from tamis.errors import StoreError
from tamis.forecast.prediction import Prediction
from tamis.memory.sampler import note_elsewhere

_SHOW_S = 0.2
_log = logging.getLogger("tamis.leaks")
_log.addHandler(logging.NullHandler())  # alerts report leaks on the terminal; this is for the log of a program


@dataclass
class Totals:
    """Totals of a run so far. `ledger`: earlier attempts included."""

    ledger: Ledger
    share: float = 0.0  # of the documents, that the finished sampling steps delivered
    read_bytes: int = 0  # by this attempt
    counters: Counter[str] = field(default_factory=Counter)
    first_failure: str = ""  # the first document on which a stage raised
    why_sampled: str = ""  # why a sampling step was not done

    def add(self, supervisor: Supervisor) -> None:
        """Add the work of a supervisor that is through."""
        self.ledger.merge(supervisor.queue.ledger)
        self.read_bytes += supervisor.queue.ledger.read_bytes
        self.first_failure = self.first_failure or supervisor.status.first_failure
        self.counters.update(supervisor.status.counters.as_dict())


class Observation:
    """Records one run.

    Made once the run directory is ready; `start` before the first event, `stop` after the last one, `close` at the end.
    """

    def __init__(self, context: ExecutionContext, progress: Progress, watch: Watch | None, console: Console) -> None:
        self._context, self._progress, self._watch, self.console = context, progress, watch, console
        self._db = RunDatabase(os.path.join(context.dir.path, "run.sqlite"))
        self._shown_s = 0.0
        self._phase = "working"
        self._monitor: Monitor | None = None
        self.outcome = Outcome()
        self.recorder: RunRecorder | None = None  # of the whole run; None in one pass of a workflow
        self.leaks: list[LeakReport] = []

    def start(self, config: Config, plan: RunPlan, past: Past) -> None:
        """Begin to sample, with what is known of the run."""
        context = self._context
        files = context.inputs.files
        facts = RunFacts(
            run_id=plan.run_id,
            name=context.job.name,
            host=os.uname().nodename,
            budget_bytes=config.budget_bytes,
            workers=config.n_slots,
            input_bytes=files.total_bytes,
            n_files=len(files),
            shows_documents=not context.settings.no_samples,
            redacts=any(stage.redacts_samples for stage in context.job.stages),
            text_field=context.job.text_field,
        )
        run = MonitoredRun(
            labels=context.job.labels,
            duplicate_labels=context.job.duplicate_labels,
            sizes=files.sizes,
            kinds=context.inputs.kinds,
            output=context.dir.output,
            folders=(context.dir.scratch, context.dir.staged),
            count_caller=context.settings.count_caller,
            mark=context.mark,
            facts=facts,
            started_s=context.started_s,
        )
        self._monitor = Monitor(self._db, run, past.ledger, self._watch)

    @property
    def monitor(self) -> Monitor:
        assert self._monitor is not None, "start() comes first"
        return self._monitor

    def event(self, kind: EventKind, data: Mapping[str, Any]) -> None:
        """Record an event of the run."""
        self._db.event(kind, data)
        self.outcome.add(kind, data)
        if kind is EventKind.FAILED:
            self.console.failed(data)
        if kind is EventKind.LEAK:
            self.leaks.append(cast("LeakReport", dict(data)))
            _log.warning("%s: %s", self._context.job.name, data["text"])

    def tick(
        self,
        supervisor: Supervisor,
        workers: Workers,
        used_bytes: int,
        totals: Totals,
        share: float,
        act: Callable[[list[Action]], None],
        final: bool = False,
    ) -> None:
        """Sample and show the state of the run, if it is time to; `act` carries out what alerts order.

        `share`: of this sampling step.
        """
        now = time.monotonic()
        if now - self._shown_s < _SHOW_S and not final:
            return
        self._shown_s = now
        self.console.poll()
        note_elsewhere(self._context.settings.count_caller, used_bytes)
        queue, before = supervisor.queue, totals.ledger
        self.outcome.scratch_bytes = max(self.outcome.scratch_bytes, queue.scratch.total_bytes)
        ledger, under_way = queue.ledger, queue.under_way
        n_read = before.n_read + ledger.n_read + under_way["records"]
        n_written = before.written.n + ledger.written.n
        n_dropped = before.n_dropped + ledger.n_dropped + under_way["dropped"]
        n_quarantined = before.quarantined.n + ledger.quarantined.n + under_way["quarantined"]
        n_not_sampled = before.not_sampled.n + ledger.not_sampled.n + under_way["not_sampled"]
        n_added = before.n_added + ledger.n_added + under_way["added"]
        read_bytes = ledger.read_bytes + under_way["read_bytes"]
        state: ProgressState = {
            "phase": "working",
            "share": share,
            "seconds": now - self._context.started_s,
            "used_bytes": used_bytes,
            "peak_bytes": self._context.mark.peak_bytes,
            "budget_bytes": supervisor.config.budget_bytes,
            "total_bytes": self._context.inputs.files.total_bytes,
            "left_bytes": supervisor.remaining_bytes,
            "documents": n_read,
            "written": n_written,
            "dropped": n_dropped,
            "quarantined": n_quarantined,
            "not_sampled": n_not_sampled,
            "added": n_added,
            "in_flight": n_read + n_added - n_written - n_dropped - n_quarantined - n_not_sampled,
            "read_bytes": totals.read_bytes + read_bytes,
            "all_read_bytes": before.read_bytes + read_bytes,
            "workers": len(supervisor.pool.workers),
            "level": int(supervisor.pool.pressure.level),
        }
        act(self.monitor.tick(state, supervisor, workers, before, final) or [])
        if self.recorder is not None:
            self.recorder.advance(state)
        if not final:
            self._progress({**state, "phase": self._phase})

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show that the run is in this phase, in which it reads no input."""
        self._phase = name
        self._progress({"phase": name})
        try:
            yield
        finally:
            self._phase = "working"

    @contextlib.contextmanager
    def sampling_step(self, number: int) -> Iterator[None]:
        """Record a sampling step as a part of the run."""
        if self.recorder is None:
            yield
            return
        with self.recorder.doing(_label(number)):
            yield

    def note_books(self, *books: Ledger) -> None:
        """Record what the run has read and written so far, from these books."""
        if self.recorder is not None:
            ledger = Ledger()
            for each in books:
                ledger.merge(each)
            self.recorder.note_books(ledger, self._context.mark.peak_bytes)

    def plan(self, steps: Sequence[float]) -> None:
        """Record which sampling steps are to come."""
        if self.recorder is not None:
            name = self._context.job.name
            titles = [f"sample of {share:.3g}" if share != 1.0 else name for share in steps]
            self.recorder.plan([PassRecord(_label(i), title) for i, title in enumerate(titles)])

    def finish(self, manifest: Manifest, result: RunResult) -> None:
        """Record the books of the whole run and how it ended, and give the record to its result.

        The database comes first: a reader that sees that the run has ended finds its last figures there.
        """
        if manifest.ledger is not None:
            self._db.drops(manifest.ledger)
        self._db.histograms(manifest.histograms)
        self._db.flush()
        result.work = self.monitor.work(result.counters)
        if self.recorder is None:
            return
        self.recorder.note_work(result.work)
        result.record = self.recorder.finish(
            RunCounts.of_ledger(result.ledger, result.duplicate_labels),
            status=RunStatus.SAMPLED if result.status == ResultStatus.SAMPLED else RunStatus.FINISHED,
            exit_code=result.exit_code,
            message=result.message,
            duplicate_stages=result.duplicate_labels,
        )

    def save_record(self, prediction: Prediction) -> None:
        """Write the record of settings and the prediction."""
        with contextlib.suppress(OSError):
            self._context.dir.write_json("settings.json", {"settings": self._context.record.entries})
            self._context.dir.write_json("prediction.json", dict(prediction))

    def stop(self) -> None:
        """Stop sampling."""
        self.monitor.close()

    def close(self) -> None:
        self._db.close()
        with contextlib.suppress(StoreError):
            whole = (RECORD_FILE,) if self.recorder is not None else ()
            self._context.dir.keep_files("run.sqlite", "command.json", "prediction.json", *whole)


def _label(step: int) -> str:
    return f"step-{step}"
