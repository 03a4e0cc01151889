"""A run before its work begins: the plan of its output, what workers are told, what the supervisor may use."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Any

from tamis import secrets
from tamis.engine.job import Job
from tamis.engine.ledger import Ledger
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.monitor.monitor import Monitor, MonitoredRun, Watch
from tamis.engine.run.budget.gpus import share_gpus
from tamis.engine.run.budget.outcome import Outcome
from tamis.engine.run.budget.shares import USABLE, BudgetShares, share_budget
from tamis.engine.run.compiling import compile_missing
from tamis.engine.run.identity import describe_job, differences
from tamis.engine.run.input_identity import InputIdentity
from tamis.engine.run.inputs import Inputs
from tamis.engine.run.output.directory import Past, RunDir, new_run_id
from tamis.engine.run.run_result import Progress, RunResult
from tamis.engine.run.settings import Record, RunSettings, output_settings
from tamis.engine.run.shard import Shard
from tamis.engine.run.verdict import judge
from tamis.engine.supervisor.coverage import Coverage
from tamis.engine.supervisor.cursor import MAX_FILES_PER_UNIT
from tamis.engine.supervisor.devices import fixed_workers
from tamis.engine.supervisor.state import Config, NodeSpec
from tamis.engine.supervisor.units import Kind
from tamis.engine.worker.config import OutputSpec
from tamis.engine.workers_interface import NodeUp, WorkersFactory
from tamis.errors import BudgetError, RunConflict
from tamis.formats.registry import table_entries
from tamis.hints import command
from tamis.memory.budget import Budget
from tamis.memory.machine import filesystem, free_bytes
from tamis.memory.sampler import Mark
from tamis.sizes import format_size, parse_size
from tamis.stores import options as stores

DEFAULT_BLOCK_BYTES = 32 << 20
_log = logging.getLogger("tamis.leaks")
_log.addHandler(logging.NullHandler())  # alerts say it on the terminal; a program's own log gets it
_PATIENT_QUEUES = 16


class PreparedRun:
    """What a run knows and keeps; run.py does the work."""

    def __init__(
        self,
        job: Job,
        inputs: Inputs,
        settings: RunSettings,
        make_workers: WorkersFactory,
        output: str,
        progress: Progress | None = None,
        watch: Watch | None = None,
        is_part: bool = False,
    ) -> None:
        """`is_part`: one pass of a workflow, which is predicted and measured as a whole."""
        self._shard = shard = Shard.parse(settings.shard) if settings.shard is not None else None
        self._elsewhere = shard.elsewhere(inputs.files.sizes, inputs.kinds) if shard is not None else []
        self._is_part = is_part
        self.job, self.inputs, self.settings, self.make_workers = job, inputs, settings, make_workers
        secrets.learn(*job.stages, job.source, job.reader, job.writer)
        options = (job.writer.write_kwargs or {}).get("storage_options") if job.writer is not None else None
        stores.remember(output, options, "write_kwargs: storage_options")
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
        self._leaks: list[dict[str, Any]] = []
        self._monitor: Monitor | None = None
        self._outcome = Outcome()
        self._compiled_s = 0.0
        self._why_sampled = ""
        self._first_failure = ""
        self._too_small: BudgetError | None = None  # of the last node that joined

    @property
    def _places(self) -> list[str]:
        """Folders that the run writes to."""
        return [self.dir.output, self.dir.scratch]

    def _plan(self) -> dict[str, Any]:
        """Return the plan of this output: the earlier one if it describes the same work, else a new one."""
        now = InputIdentity.of(self.inputs.files)
        stages = describe_job(self.job, output_settings(vars(self.settings)))
        plan = self.dir.read_plan()
        if plan is not None and (clean := secrets.redacted(plan["stages"])) != plan["stages"]:
            plan["stages"] = clean  # an earlier version kept them
            self.dir.write_plan(plan)
        if plan is None:
            plan = {
                "run_id": new_run_id(),
                "name": self.job.name,
                "inputs": now.to_dict(),
                "formats": list(self.job.reader.formats) if self.job.reader is not None else [],
                "stages": stages,
                "rules": self.job.rules(),
            }
            if self._shard is not None:
                plan["shard"] = str(self._shard)
            self.dir.write_plan(plan)
            earlier = self.settings.targets[:1]
        else:
            changed = differences(plan["stages"], stages) or InputIdentity.from_dict(plan["inputs"]).changes(now)
            if changed and not self.dir.has_commits():  # an attempt that wrote nothing claims nothing
                self.dir.forget(everything=not self.dir.is_last_pass())
                return self._plan()
            if changed:
                more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
                raise RunConflict(
                    f"{self.dir.target} holds a run of something else: {'; '.join(changed[:3])}{more}. "
                    "Give another output, or start over with fresh=True (--fresh)"
                )
            earlier = self.settings.targets[:1]
            if self.dir.has_commits():
                earlier = [float(s) for s in (self.dir.read_json("steps.json") or {}).get("steps", earlier)]
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

    def _rows_facts(self) -> tuple[float, bool, int]:
        """Return facts about the formats that are read.

        These are the bytes of rows per byte of a file, whether empty files are dispatched, and how many files form one
        partition at most.
        """
        known = table_entries(self.job.reader.formats) if self.job.reader is not None else []
        together = min((r.files_together for r in known), default=MAX_FILES_PER_UNIT)
        return min((r.expansion for r in known), default=4.0), any(r.reads_empty for r in known), together

    def _config(self, budget: Budget, shares: BudgetShares, is_remote: bool) -> Config:
        block = self.inputs.block_bytes or DEFAULT_BLOCK_BYTES
        if self.inputs.files_per_partition:
            block = 1 << 40
        gpus = share_gpus(self.job, self.settings, self.record, is_remote)
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
            bounded_in_time=not self.inputs.block_bytes and not self.inputs.files_per_partition,
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

    def _admit(self, up: NodeUp, config: Config) -> NodeSpec | None:
        """Return what a node that has joined may use: the budget of the run, as far as the machine has it.

        Return None if the node is too small to take part.
        """
        is_chosen = self.settings.memory is not None
        budget_bytes = min(config.budget_bytes, up.limit_bytes) if is_chosen else up.default_bytes
        try:
            shares = share_budget(budget_bytes, up.server, self.settings, Record(), self.job)
        except BudgetError as exc:
            text = f"node {up.name} cannot take part: {exc}"
            if budget_bytes < config.budget_bytes:
                text += f". It has {format_size(budget_bytes)}: no more is there or declared to Ray (ray start --memory, ray.init(_memory=...))"
            self._saw("node", {"text": text, "node": up.name, "up": False})
            self._too_small = BudgetError(text, exc.smallest_bytes)
            return None
        self._too_small = None
        asked = [s.n_workers for s in self.job.segments]
        return NodeSpec(
            up.node, up.name, budget_bytes, shares.pool_bytes, shares.worker_bytes, shares.n_workers, shares.shared_bytes, up.devices,
            tuple(fixed_workers(asked, config.gpus or [], len(up.devices))),
        )  # fmt: skip

    def _make_monitor(self, config: Config, plan: dict[str, Any], past: Past) -> Monitor:
        assert self._db is not None
        about = {
            "run_id": plan["run_id"], "name": self.job.name, "budget_bytes": config.budget_bytes, "workers": config.n_slots,
            "input_bytes": self.inputs.files.total_bytes, "n_files": len(self.inputs.files), "host": os.uname().nodename,
        }  # fmt: skip
        place = MonitoredRun(
            self.job.labels, self.inputs.files.sizes, self.inputs.kinds, self.dir.output, (self.dir.scratch, self.dir.staged),
            self.settings.count_caller, self._mark, about, self.began_s,
        )  # fmt: skip
        return Monitor(self._db, place, past.ledger, self._watch)

    def _keep_record(self, prediction: dict[str, Any]) -> None:
        """Observing must not hurt: on a full disk the run itself says so."""
        with contextlib.suppress(OSError):
            self.dir.write_json("settings.json", {"settings": self.record.entries})
            self.dir.write_json("prediction.json", prediction)

    def _saw(self, kind: str, data: dict[str, Any]) -> None:
        assert self._db is not None
        self._db.event(kind, data)
        self._outcome.saw(kind, data)
        if kind == "leak":
            self._leaks.append(data)
            _log.warning("%s: %s", self.job.name, data["text"])

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
            passed_over=self.inputs.files.skipped.to_list(),
        )

    def _covered(self, past: Past, step: int) -> Coverage:
        """Return the part of the input that is committed or belongs to other shards."""
        covered = past.done.setdefault(step, Coverage(self._plain_size))
        for stretch in self._elsewhere:
            covered.add(*stretch)
        return covered

    def _plain_size(self, file: int) -> int:
        return self.inputs.files.sizes[file] if self.inputs.kinds[file] is Kind.BYTES else -1

    def _compile(self, budget: Budget) -> None:
        """Kernels that are missing, before any other process is started: what compiling takes is part of the peak."""
        began_s, tell = time.monotonic(), self.progress if self._has_progress else None
        compile_missing(self.job.kernel_groups(), budget.bytes, self.settings.count_caller, tell)
        self._compiled_s = time.monotonic() - began_s


def _patient_queue(queue_bytes: int, scratch: str) -> int:
    """Return the queue size for a feeder that must decode its file again whenever it is interrupted.

    It is larger than `queue_bytes` if scratch is not stored in memory.
    """
    if filesystem(scratch) in ("tmpfs", "ramfs"):
        return queue_bytes
    return max(queue_bytes, min(queue_bytes * _PATIENT_QUEUES, (free_bytes([scratch]) or 0) // 8))
