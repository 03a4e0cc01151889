"""One execution of a job: prepare or resume the run directory, drive the work, check the books, close the run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tamis import secrets
from tamis.engine.crew import Crew, NodeUp, Server
from tamis.engine.histograms import tables
from tamis.engine.job import Job
from tamis.engine.ledger import Ledger
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.monitor.monitor import Monitor, Watch
from tamis.engine.monitor.monitor import Place as MonitorPlace
from tamis.engine.run import disk
from tamis.engine.run.budget_shares import USABLE, Shares, refuse_too_large, share_budget
from tamis.engine.run.commit import Committer
from tamis.engine.run.compiling import compile_missing
from tamis.engine.run.directory import Past, RunDir, changed_inputs, describe_inputs, new_run_id
from tamis.engine.run.drive import Driver
from tamis.engine.run.expectation import Expectation
from tamis.engine.run.gpus import share_gpus
from tamis.engine.run.identity import describe_job, differences
from tamis.engine.run.inputs import Inputs
from tamis.engine.run.join_shards import drop_shards, join_shards
from tamis.engine.run.outcome import Outcome
from tamis.engine.run.retract import retract
from tamis.engine.run.settings import Record, RunSettings
from tamis.engine.run.settings_record import note_budget, note_models, note_prediction, note_shares, note_sizes
from tamis.engine.run.shard import Shard
from tamis.engine.run.verdict import judge
from tamis.engine.supervisor.coverage import Coverage
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.devices import fixed_workers
from tamis.engine.supervisor.remedies import Remedies
from tamis.engine.supervisor.state import Config, NodeSpec
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.supervisor.units import Kind
from tamis.engine.worker.workplace import OutputSpec, Workplace
from tamis.errors import BudgetError, ConservationError, Incomplete, PipelineError, RunConflict, StoreError, TamisError
from tamis.formats.registry import TABLES, rows_of
from tamis.hints import command
from tamis.memory.budget import Budget, find_budget
from tamis.memory.lookout import Mark, note_elsewhere, watching
from tamis.memory.machine import filesystem, free_bytes
from tamis.memory.predictor import Predictor
from tamis.sizes import format_size
from tamis.stores import options as stores

DEFAULT_BLOCK_BYTES = 32 << 20
_PATIENT_QUEUES = 16
_SHOW_S = 0.2
_COMPILED_S = 3.0  # making the crew takes longer only where kernels are compiled
Progress = Callable[[dict[str, Any]], None]


class OpenCrew(Crew, Protocol):
    """A crew with a life of its own."""

    server: Server
    is_remote: bool  # workers are on nodes that come and go, each with a budget of its own

    def open(self) -> None: ...

    def close(self) -> None: ...

    def wake(self) -> None: ...


CrewMaker = Callable[[Job, dict[str, Any], str, bool], OpenCrew]


@dataclass
class RunResult:
    """What a run did. `status`: finished, sampled (a share was delivered), or already (nothing was left to do)."""

    status: str
    run_dir: str
    output: str
    ledger: Ledger = field(default_factory=Ledger)
    share: float = 1.0
    budget_bytes: int = 0
    peak_bytes: int = 0  # as somebody outside counts it (sum of PSS): all processes of the run, from first to last
    caller_bytes: int = 0  # of a program that called the run: told, not counted; 0 where it is counted
    seconds: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    exit_code: int = 0
    message: str = ""
    has_writer: bool = True
    n_files: int = 0  # output files; `files` describes them, but reads the whole log for it
    prediction: dict[str, Any] = field(default_factory=dict)  # expected against measured (expectation.py)
    read_bytes: int = 0  # decoded, by this attempt; the ledger has those of all attempts
    report: str = ""  # the page that tells all this; nothing where none was written
    passed_over: list[dict[str, Any]] = field(default_factory=list)  # found and not read: reason, n, examples
    first_failure: str = ""  # the first document on which a stage raised: stage, exception, place, line of code

    @property
    def files(self) -> list[dict[str, Any]]:
        """What was written: name, rows, bytes and content hash of every file, in input order."""
        return list(RunDir(self.output).files().written())


class Run:
    """Call `execute` once."""

    def __init__(
        self,
        job: Job,
        inputs: Inputs,
        settings: RunSettings,
        make_crew: CrewMaker,
        output: str,
        progress: Progress | None = None,
        watch: Watch | None = None,
        is_part: bool = False,
    ) -> None:
        """`is_part`: one pass of a workflow, which is predicted and measured as a whole."""
        shard = Shard.parse(settings.shard) if settings.shard is not None else None
        self._shard, self._elsewhere = (
            shard,
            shard.elsewhere(inputs.files.sizes, inputs.kinds) if shard is not None else [],
        )
        self._is_part = is_part
        self.job, self.inputs, self.settings, self.make_crew = job, inputs, settings, make_crew
        secrets.learn(*job.stages, job.source, job.reader, job.writer)
        options = (job.writer.write_kwargs or {}).get("storage_options") if job.writer is not None else None
        stores.use(output, options, "write_kwargs: storage_options")
        self.progress = progress or (lambda _: None)
        self._has_progress = progress is not None
        self.dir = RunDir(output, settings.scratch)
        self.record = Record()
        self.began_s = time.monotonic()
        self._mark = Mark()  # of the memory in use
        self._read_bytes = 0  # by this attempt, in the sampling steps that are through
        self._shown_s = 0.0
        self._db: RunDatabase | None = None
        self._watch = watch
        self._monitor: Monitor | None = None
        self._outcome = Outcome()
        self._compiled_s = 0.0
        self._why_sampled = ""
        self._first_failure = ""

    def execute(self) -> RunResult:
        budget = find_budget(self.settings.memory, os.environ)
        mode = self.job.writer.mode if self.job.writer is not None else "ignore"
        if not self.settings.merge:  # files of shards may be there already: each is looked at when it is joined
            self.dir.check_foreign(mode)
        self.dir.open()
        try:
            with watching(self.settings.count_caller) as self._mark:
                return self._locked(budget, mode)
        except OSError as exc:
            raise disk.explained(exc, self._places) from exc
        finally:
            self.dir.tidy()
            self.dir.close()

    @property
    def _places(self) -> list[str]:
        """Folders that the run writes to."""
        return [self.dir.output, self.dir.scratch]

    # -- preparing ------------------------------------------------------------------------------------------------------
    def _locked(self, budget: Budget, mode: str) -> RunResult:
        if self.settings.fresh or mode == "overwrite":
            self.dir.forget()
        base = self.dir.target if self.settings.merge is True else str(self.settings.merge or "")
        if base and self.dir.read_json("manifest.json") is None:
            join_shards(base, self.dir)
        result = self._planned(budget)
        if base and result.exit_code in (0, Incomplete.exit_code):
            drop_shards(base)
        return result

    def _planned(self, budget: Budget) -> RunResult:
        plan = self._plan()
        done = self.dir.read_json("manifest.json")
        past = self.dir.recover(self._plain_size, histograms=done is not None)
        if done is not None and done.get("steps") == plan["steps"]:
            return self._already(done, past)
        self.dir.remove_json("manifest.json")
        self.dir.make_scratch()
        self._db = RunDatabase(os.path.join(self.dir.path, "run.sqlite"))
        note_budget(self.record, budget, self.settings)
        try:
            return self._work(budget, plan, past)
        finally:
            self._db.close()
            with contextlib.suppress(StoreError):  # observing must not hurt
                self.dir.keep_files("run.sqlite", "command.json", "prediction.json")

    def _plan(self) -> dict[str, Any]:
        """The plan of this output: made now, or the earlier one if it is the same work."""
        now = describe_inputs(self.inputs.files)
        stages = describe_job(self.job, self.settings.changing_output)
        plan = self.dir.read_plan()
        if plan is not None and (clean := secrets.redacted(plan["stages"])) != plan["stages"]:
            plan["stages"] = clean  # an earlier version kept them
            self.dir.write_plan(plan)
        if plan is None:
            plan = {
                "run_id": new_run_id(),
                "name": self.job.name,
                "inputs": now,
                "stages": stages,
                "rules": self.job.rules(),
            }
            if self._shard is not None:
                plan["shard"] = str(self._shard)
            self.dir.write_plan(plan)
            earlier = self.settings.targets[:1]
        else:
            changed = differences(plan["stages"], stages) or changed_inputs(plan["inputs"], now)
            if changed and not self.dir.has_commits():  # an attempt that wrote nothing claims nothing
                self.dir.forget()
                return self._plan()
            if changed:
                more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
                raise RunConflict(
                    f"{self.dir.target} holds a run of something else: {'; '.join(changed[:3])}{more}. "
                    "Give another output, or start over with fresh=True (--fresh)"
                )
            earlier = [
                float(s) for s in (self.dir.read_json("steps.json") or {}).get("steps", self.settings.targets[:1])
            ]
        del plan["inputs"]  # a hundred thousand paths, not needed again
        plan["steps"] = self._steps(earlier)
        if (self.dir.read_json("steps.json") or {}).get("steps") != plan["steps"]:  # the disk may be full
            self.dir.write_json("steps.json", {"steps": plan["steps"]})
        return plan

    def _steps(self, earlier: list[float]) -> list[float]:
        """Sampling steps (upper ends of hash windows): those of earlier runs, then those still wanted."""
        targets = self.settings.targets
        wanted = targets[-1]
        if wanted < earlier[-1]:
            raise RunConflict(
                f"{self.dir.target} already holds (or is being filled with) {earlier[-1]:.3%} of the documents; a smaller "
                "sample needs another output, or fresh=True (--fresh)"
            )
        return [*earlier, *(t for t in targets if t > earlier[-1])]

    def _already(self, done: dict[str, Any], past: Past) -> RunResult:
        result = self._result("already", past, done["steps"][-1])
        result.exit_code, result.message = int(done.get("exit_code", 0)), str(done.get("message", ""))
        told = done.get("status") == "finished" and "lost_bytes" in done.get("ledger", {})
        if told and result.exit_code in (0, Incomplete.exit_code):  # the limit may be another one now
            result.exit_code, result.message = self._verdict(past.ledger)
        return result

    # -- working --------------------------------------------------------------------------------------------------------
    def _work(self, budget: Budget, plan: dict[str, Any], past: Past) -> RunResult:
        windows = list(zip([0.0, *plan["steps"][:-1]], plan["steps"], strict=True))
        place = Workplace(
            self.dir.staged, self.dir.scratch, self.settings.max_record_bytes, windows, self._output_spec(),
            keep_rejected=self.settings.keep_rejected, stores=stores.settings(), remote=self.dir.remote.url if self.dir.remote is not None else "",
        )  # fmt: skip
        workplace = {
            "workplace": place.to_dict(),
            "plan": os.path.join(self.dir.path, "plan.json"),
            "budget_bytes": budget.bytes,
        }
        self.progress({"phase": "starting"})
        refuse_too_large(budget.bytes, [(s.name, s.least_bytes()) for s in self.job.stages])
        self._compile(budget)
        crew = self.make_crew(
            self.job, workplace, os.path.join(self.dir.path, "worker.log"), self.settings.count_caller
        )
        try:
            crew.open()
            shares = share_budget(
                budget.bytes,
                crew.server,
                self.settings,
                self.record,
                self.job,
            )
            return self._steps_of_work(crew, budget, shares, plan, past)
        finally:
            crew.close()

    def _compile(self, budget: Budget) -> None:
        """Kernels that are missing, before any other process is started: what compiling takes is part of the peak."""
        began_s, tell = time.monotonic(), self.progress if self._has_progress else None
        compile_missing(self.job.kernel_groups(), budget.bytes, self.settings.count_caller, tell)
        self._compiled_s = time.monotonic() - began_s

    def _output_spec(self) -> OutputSpec:
        writer = self.job.writer
        if writer is None:
            return OutputSpec()
        return OutputSpec(
            format=writer.format,
            extension=writer.file_extension,
            codec=writer.codec,
            fields=tuple(writer.fields) if writer.fields is not None else None,
            schema=dict(writer.schema) if writer.schema is not None else None,
            compression=(writer.write_kwargs or {}).get("compression", "zstd"),
            options=dict(writer.options or {}),
        )

    def _rows_facts(self) -> tuple[float, bool]:
        """Of the formats that are read: bytes of rows for a byte of a file, and whether empty files are handed out."""
        known = rows_of(self.job.reader.formats) if self.job.reader is not None else []
        return min((r.ratio for r in known), default=4.0), any(r.takes_empty for r in known)

    def _steps_of_work(
        self, crew: OpenCrew, budget: Budget, shares: Shares, plan: dict[str, Any], past: Past
    ) -> RunResult:
        config = self._config(budget, shares, crew.is_remote)
        expectation = Expectation(
            self.job, plan["stages"], self.began_s + self._compiled_s, self._compiled_s < _COMPILED_S, self._is_part
        )
        predictors = expectation.models(config.max_block_bytes)
        self._note_start(crew, config, shares, expectation, predictors, plan, past)
        total = past.ledger
        self._monitor = self._make_monitor(config, plan, past)
        committer = Committer(self.dir.output, self.dir.quarantine, self.dir.log, crew.wake, self.dir.remote)
        share, supervisor, remedies = 0.0, None, Remedies()
        counters: dict[str, int] = {}
        try:
            for step, target in enumerate(plan["steps"]):
                if step and not self._fits_disk(total, plan["steps"][step - 1], target):
                    break
                cursor = Cursor(
                    self.inputs.files,
                    self.inputs.kinds,
                    self._covered(past, step),
                    self.inputs.files_per_partition,
                    *self._rows_facts(),
                )
                supervisor = Supervisor(config, cursor, predictors, step, remedies)
                self._drive(supervisor, crew, committer, total, target)
                if step and self._gives_up(supervisor, target):
                    retract(self.dir, step)
                    total = self.dir.recover(self._plain_size).ledger
                    break
                total.merge(supervisor.ledger)
                self._read_bytes += supervisor.ledger.read_bytes
                self._first_failure = self._first_failure or supervisor.first_failure
                for name, n in supervisor.counters.items():
                    counters[name] = counters.get(name, 0) + n
                self._check_stopped(supervisor, total)
                share = target
            self._reconcile_schemas(config, predictors, crew, committer, total)
            expectation.end(self._mark.peak_bytes, total)
        finally:
            committer.close()
            self._monitor.close()
            expectation.save(predictors)
            expectation.outcome.note(self.record, predictors, counters)
            self._keep_record(expectation.prediction)
        return self._finish(plan, share, total, counters, budget, expectation.prediction)

    def _note_start(
        self,
        crew: OpenCrew,
        config: Config,
        shares: Shares,
        expectation: Expectation,
        predictors: list[Predictor],
        plan: dict[str, Any],
        past: Past,
    ) -> None:
        """Every setting with its reason, and what is expected of this run: written down before anything is done."""
        self._outcome = expectation.outcome
        server = {
            "server_own_bytes": crew.server.own_bytes, "server_anon_bytes": crew.server.anon_bytes,
            "server_peak_bytes": crew.server.peak_bytes,
        }  # fmt: skip
        note_shares(self.record, self.settings, shares, config, self.job, server)
        note_sizes(self.record, self.settings, self.inputs, config, self.job, self.dir.scratch, os.environ)
        note_models(self.record, predictors, expectation.from_profile, len(expectation.past))
        expectation.begin(self.inputs, config, shares, predictors, len(plan["steps"]), past.ledger)
        note_prediction(self.record, expectation.prediction)
        self._keep_record(expectation.prediction)

    def _keep_record(self, prediction: dict[str, Any]) -> None:
        """Observing must not hurt: on a full disk the run itself says so."""
        with contextlib.suppress(OSError):
            self.dir.write_json("settings.json", {"settings": self.record.entries})
            self.dir.write_json("prediction.json", prediction)

    def _admit(self, up: NodeUp, config: Config) -> NodeSpec | None:
        """What a node that has joined may use: the budget of the run, as far as the machine has it. None: it is too small to take part."""
        chosen = self.settings.memory is not None or bool(os.environ.get("TAMIS_MEMORY", "").strip())
        budget_bytes = min(config.budget_bytes, up.limit_bytes) if chosen else up.default_bytes
        try:
            shares = share_budget(budget_bytes, up.server, self.settings, Record(), self.job)
        except BudgetError as exc:
            self._saw("node", {"text": f"node {up.name} cannot take part: {exc}", "node": up.name, "up": False})
            return None
        asked = [s.n_workers for s in self.job.segments]
        return NodeSpec(
            up.node, up.name, budget_bytes, shares.pool_bytes, shares.worker_bytes, shares.n_workers, shares.shared_bytes, up.devices,
            tuple(fixed_workers(asked, config.gpus or [], len(up.devices))),
        )  # fmt: skip

    def _config(self, budget: Budget, shares: Shares, is_remote: bool) -> Config:
        block = self.inputs.block_bytes or DEFAULT_BLOCK_BYTES
        if self.inputs.files_per_partition:
            block = 1 << 40
        from tamis.sizes import parse_size

        gpus = share_gpus(self.job, self.settings, self.record)
        return Config(
            budget_bytes=budget.bytes,
            pool_bytes=shares.pool_bytes,
            worker_bytes=shares.worker_bytes,
            n_slots=shares.n_workers,
            fixed_workers=fixed_workers([s.n_workers for s in self.job.segments], gpus.shares, len(gpus.devices)),
            cpus=[s.resources.cpus for s in self.job.segments],
            gpus=gpus.shares,
            devices=[] if is_remote else gpus.devices,
            gpu_bytes=gpus.limit_bytes,
            gpu_overflow=self.settings.gpu_overflow,
            mode=self.settings.mode,
            max_block_bytes=block,
            queue_bytes=parse_size(self.settings.queue),
            patient_queue_bytes=_patient_queue(parse_size(self.settings.queue), self.dir.scratch),
            timeout_s=self.settings.timeout,
            rate_limit=self.settings.rate_limit,
            rate_floor=self.settings.rate_floor,
            usable=USABLE,
            shared_bytes=shares.shared_bytes,
            has_setup=[self.job.sets_up(s) for s in self.job.segments],
            in_all=[s.in_all for s in self.job.segments],
            nodes=[] if is_remote else None,
        )

    def _make_monitor(self, config: Config, plan: dict[str, Any], past: Past) -> Monitor:
        assert self._db is not None
        about = {
            "run_id": plan["run_id"], "name": self.job.name, "budget_bytes": config.budget_bytes, "workers": config.n_slots,
            "input_bytes": self.inputs.files.total_bytes, "n_files": len(self.inputs.files),
        }  # fmt: skip
        place = MonitorPlace(
            self.job.labels, self.inputs.files.sizes, self.inputs.kinds, self.dir.output, (self.dir.scratch, self.dir.staged),
            self.settings.count_caller, self._mark, about, self.began_s,
        )  # fmt: skip
        return Monitor(self._db, place, past.ledger, self._watch)

    def _drive(
        self, supervisor: Supervisor, crew: OpenCrew, committer: Committer, before: Ledger, target: float
    ) -> None:
        assert self._db is not None
        assert self._monitor is not None
        driver = Driver(
            supervisor, crew, committer, self._saw, self._monitor, lambda up: self._admit(up, supervisor.config)
        )
        self._monitor.begin(supervisor)
        try:
            driver.run(lambda now: self._tick(driver, before, target, now))
        except KeyboardInterrupt:
            driver.stop("interrupted")
            raise
        finally:
            self._tick(driver, before, target, time.monotonic(), final=True)

    def _saw(self, kind: str, data: dict[str, Any]) -> None:
        assert self._db is not None
        self._db.event(kind, data)
        self._outcome.saw(kind, data)

    def _tick(self, driver: Driver, before: Ledger, target: float, now: float, final: bool = False) -> None:
        if now - self._shown_s < _SHOW_S and not final:
            return
        self._shown_s = now
        s = driver.supervisor
        note_elsewhere(self.settings.count_caller, driver.used_bytes)
        self._outcome.scratch_bytes = max(self._outcome.scratch_bytes, s.scratch.total_bytes)
        left = s.bytes_left
        state = {
            "phase": "working", "share": target, "seconds": now - self.began_s, "used_bytes": driver.used_bytes,
            "peak_bytes": self._mark.peak_bytes, "budget_bytes": s.config.budget_bytes, "total_bytes": self.inputs.files.total_bytes,
            "left_bytes": left, "documents": before.records.n + s.ledger.records.n + s.under_way["records"], "written": before.written.n + s.ledger.written.n,
            "dropped": before.n_dropped + s.ledger.n_dropped + s.under_way["dropped"],
            "quarantined": before.quarantined.n + s.ledger.quarantined.n + s.under_way["quarantined"],
            "read_bytes": self._read_bytes + s.ledger.read_bytes + s.under_way["read_bytes"], "workers": len(s.workers), "level": int(s.pressure.level),
        }  # fmt: skip
        assert self._monitor is not None
        driver.act(self._monitor.tick(state, s, driver.crew, final) or [])
        if not final:
            self.progress(state)

    def _check_stopped(self, supervisor: Supervisor, total: Ledger) -> None:
        """Turn a supervisor that stopped early into the error that says why."""
        if supervisor.fatal:
            if supervisor.fatal_kind == "disk" and disk.is_full(supervisor.fatal):
                raise disk.no_room(supervisor.fatal, self._places)
            if supervisor.fatal_kind == "budget":
                raise BudgetError(f"{supervisor.fatal}. {total.written.n} documents are committed")
            if supervisor.fatal_kind == "usage":
                raise PipelineError(supervisor.fatal)
            raise TamisError(f"{supervisor.fatal}. Everything committed so far is kept; see {self.dir.path}/worker.log")
        if supervisor.stopping:
            raise Incomplete(
                f"{supervisor.stopping}. {total.written.n} documents are committed; run the same command again to go on"
            )
        if supervisor.infeasible:
            raise Incomplete(supervisor.infeasible[0])

    def _fits_disk(self, total: Ledger, done_share: float, next_share: float) -> bool:
        """Whether the next sampling step fits the disk, judged by what the steps so far took."""
        if self.settings.on_infeasible != "sample" or self.dir.remote is not None:
            return True
        needed = total.written_bytes / done_share * (next_share - done_share) * 1.05
        free = shutil.disk_usage(self.dir.output).free
        if needed > free:
            self._say_why_sampled(
                next_share,
                f"it would take {format_size(needed)} more on the disk, {format_size(free)} are free. Make room",
            )
        return needed <= free

    def _gives_up(self, supervisor: Supervisor, share: float) -> bool:
        """Whether a sampling step ended for want of memory or disk, and the user would rather have the sample before it."""
        if self.settings.on_infeasible != "sample":
            return False
        if supervisor.fatal_kind == "disk" and disk.is_full(supervisor.fatal):
            self._say_why_sampled(share, "the disk was full before that was done. Make room")
        elif supervisor.infeasible and not supervisor.fatal:
            self._say_why_sampled(share, f"{supervisor.infeasible[0]}. Give more memory")
        elif supervisor.fatal_kind == "budget":
            self._say_why_sampled(share, f"{supervisor.fatal}. Give more memory")
        return bool(self._why_sampled)

    def _say_why_sampled(self, share: float, why: str) -> None:
        self._why_sampled = f"{'all' if share == 1.0 else f'{share:.0%}'} of them could not be done: {why}"
        self.record.note("sample", share, "adaptation", self._why_sampled)

    def _reconcile_schemas(
        self, config: Config, predictors: list[Predictor], crew: OpenCrew, committer: Committer, total: Ledger
    ) -> None:
        """JSONL -> Parquet: one schema for all files of the run, the union of what partitions found."""
        if self._output_spec().format not in TABLES:
            return
        found = [f for f in self._committed_files(committer) if f.get("schema")]
        files = {f["name"]: f["schema"] for f in found}
        if len(set(files.values())) < 2:
            return
        distinct = sorted({json.dumps([f["schema"], f.get("observed", "{}")]) for f in found})
        self.progress({"phase": "schema"})
        empty = Cursor(type(self.inputs.files)(), [])
        joiner = Supervisor(config, empty, predictors)
        joiner.join_schemas(distinct)
        self._drive(joiner, crew, committer, total, 1.0)
        self._check_stopped(joiner, Ledger())
        union = joiner.schemas["*"]
        writer = Supervisor(config, Cursor(type(self.inputs.files)(), []), predictors)
        wanted = json.loads(union)[0]
        writer.recast(union, [n for n, s in files.items() if s != wanted], self.dir.target)
        self._drive(writer, crew, committer, total, 1.0)
        self._check_stopped(writer, Ledger())

    def _committed_files(self, committer: Committer) -> list[dict[str, Any]]:
        return [f for f in self.dir.recover(histograms=False).files.values() if f["kind"] == "output"]

    # -- closing --------------------------------------------------------------------------------------------------------
    def _finish(
        self,
        plan: dict[str, Any],
        share: float,
        total: Ledger,
        counters: dict[str, int],
        budget: Budget,
        prediction: dict[str, Any],
    ) -> RunResult:
        past = self.dir.recover(self._plain_size)
        problems = total.problems()
        if past.ledger.to_dict()["written"] != total.to_dict()["written"]:
            problems.append(f"the commit log holds {past.ledger.written.n} documents, {total.written.n} were written")
        for step in range(len([s for s in plan["steps"] if s <= share])):
            gap = self._covered(past, step).first_gap(len(self.inputs.files), lambda i: self.inputs.files.sizes[i] == 0)
            if gap is not None:
                problems.append(f"{self.inputs.files.paths[gap[0]]} was not processed from {gap[1]} on")
        status = "finished" if share == plan["steps"][-1] else "sampled"
        result = self._result(status, past, share)
        result.counters, result.budget_bytes = counters, budget.bytes
        result.peak_bytes, result.caller_bytes = self._mark.peak_bytes, self._mark.caller_bytes
        result.read_bytes = self._read_bytes
        result.prediction = prediction
        result.exit_code, result.message = self._verdict(past.ledger)
        result.first_failure = self._first_failure
        if result.exit_code and result.first_failure:
            result.message += f". First: {result.first_failure}"
        if status == "sampled":
            told = f"{share:.0%} of the documents were delivered, chosen by their content; {self._why_sampled} and run the same command again"
            result.exit_code = Incomplete.exit_code
            result.message = f"{told}. {result.message}" if result.message else told
        if problems:
            result.exit_code, result.message = (
                ConservationError.exit_code,
                "the books do not balance: " + "; ".join(problems),
            )
        plan["steps"] = [s for s in plan["steps"] if s <= share]
        self.dir.write_json("steps.json", {"steps": plan["steps"]})
        self.dir.write_json(
            "manifest.json",
            {
                "run_id": plan["run_id"], "steps": plan["steps"], "status": result.status, "share": share, "exit_code": result.exit_code,
                "message": result.message, "ledger": past.ledger.to_dict(), "content_hash": f"{past.ledger.content.identity:032x}",
                "seconds": round(result.seconds, 3), "budget_bytes": budget.bytes, "peak_bytes": result.peak_bytes, "caller_bytes": result.caller_bytes, "counters": counters,
                "read_bytes": self._read_bytes,
                "n_files": past.n_files, "histograms": tables(past.ledger), "prediction": prediction, "passed_over": result.passed_over,
            },
        )  # fmt: skip
        return result

    def _verdict(self, ledger: Ledger) -> tuple[int, str]:
        see = command("quarantine", self.dir.target)
        return judge(ledger, self.inputs.files.total_bytes, self.settings.rate_limit, self.settings.rate_floor, see)

    def _result(self, status: str, past: Past, share: float) -> RunResult:
        seconds = time.monotonic() - self.began_s
        return RunResult(
            status,
            self.dir.path,
            self.dir.target,
            past.ledger,
            share,
            seconds=seconds,
            has_writer=self.job.writer is not None,
            n_files=past.n_files,
            passed_over=self.inputs.files.passed.to_list(),
        )

    def _covered(self, past: Past, step: int) -> Coverage:
        """What of the input is committed, or is not this shard's."""
        covered = past.done.setdefault(step, Coverage(self._plain_size))
        for stretch in self._elsewhere:
            covered.add(*stretch)
        return covered

    def _plain_size(self, file: int) -> int:
        return self.inputs.files.sizes[file] if self.inputs.kinds[file] is Kind.BYTES else -1


def _patient_queue(queue_bytes: int, scratch: str) -> int:
    """What a feeder may fill that has to decode its file again whenever it is interrupted: more, where that is no memory."""
    if filesystem(scratch) in ("tmpfs", "ramfs"):
        return queue_bytes
    return max(queue_bytes, min(queue_bytes * _PATIENT_QUEUES, (free_bytes([scratch]) or 0) // 8))
