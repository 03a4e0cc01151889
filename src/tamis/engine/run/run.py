"""One execution of a job: prepare or resume the run directory, drive the work, check the books, close the run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections import Counter
from typing import Any

from tamis.engine.histograms import tables
from tamis.engine.ledger import Ledger
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.run import disk
from tamis.engine.run.budget.expectation import Expectation
from tamis.engine.run.budget.settings_record import note_budget, note_models, note_prediction, note_shares, note_sizes
from tamis.engine.run.budget.shares import BudgetShares, refuse_too_large, share_budget
from tamis.engine.run.event_loop import EventLoop
from tamis.engine.run.identity import differences
from tamis.engine.run.output.commit import Committer
from tamis.engine.run.output.directory import Past
from tamis.engine.run.output.join_shards import can_join_again, drop_shards, join_shards
from tamis.engine.run.output.retract import retract
from tamis.engine.run.preparing import PreparedRun
from tamis.engine.run.run_result import RunResult
from tamis.engine.supervisor.alert_orders import AlertOrders
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.state import Config, FatalKind
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.workers_interface import Workers
from tamis.errors import BudgetError, ConservationError, Incomplete, PipelineError, RunConflict, StoreError, TamisError
from tamis.formats.registry import TABLES
from tamis.memory.budget import Budget, find_budget
from tamis.memory.predictor import Predictor
from tamis.memory.sampler import note_elsewhere, watching
from tamis.sizes import format_size
from tamis.stores import options as stores

_SHOW_S = 0.2
_COMPILED_S = 3.0  # making workers ready takes longer only where kernels are compiled


class Run(PreparedRun):
    """Call `execute` once."""

    def execute(self) -> RunResult:
        # From the environment it is found again, by the function that says so to the user.
        memory = None if self.settings.origin("memory") == "environment" else self.settings.memory
        budget = find_budget(memory, os.environ)
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

    # -- preparing ------------------------------------------------------------------------------------------------------
    def _locked(self, budget: Budget, mode: str) -> RunResult:
        base = self.dir.target if self.settings.merge is True else str(self.settings.merge or "")
        asked = "--fresh" if self.settings.fresh else ""
        if self.dir.is_half_forgotten():
            asked = "an earlier --fresh, which did not end"
        # Files of shards that were joined lie in this output and nowhere else.
        if (asked or mode == "overwrite") and (not base or can_join_again(base, asked)):
            self.dir.forget(everything=not self.dir.is_last_pass())
        if base and self.dir.read_json("manifest.json") is None:
            join_shards(base, self.dir, differences, may_hold_others=mode == "append")
        result = self._planned(budget)
        if base and result.exit_code in (0, Incomplete.exit_code):
            drop_shards(base)
        return result

    def _planned(self, budget: Budget) -> RunResult:
        plan = self._plan()
        done = self.dir.read_json("manifest.json")
        past = self.dir.recover(self._plain_size, histograms=done is not None)
        if done is not None and done.get("steps") == plan["steps"] and _agree(done, past):
            return self._already(done, past)
        self.dir.check_links()
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
        remote = self.dir.remote
        worker_config = WorkerConfig(
            staged=self.dir.staged,
            scratch=self.dir.scratch,
            max_record_bytes=self.settings.max_record_bytes,
            windows=windows,
            output=self._output_spec(),
            keep_rejected=self.settings.keep_rejected,
            stores=stores.settings(),
            output_url=remote.url if remote is not None else "",
            remote_scratch=self.dir.far,
            sends_blocks=bool(self.dir.far) and self.settings.mode == "batch",
            plan_path=os.path.join(self.dir.path, "plan.json"),
            budget_bytes=budget.bytes,
        )
        self.progress({"phase": "starting"})
        refuse_too_large(budget.bytes, [(s.name, s.least_bytes()) for s in self.job.stages])
        self._compile(budget)
        workers = self.make_workers(
            self.job, worker_config, os.path.join(self.dir.path, "worker.log"), self.settings.count_caller
        )
        try:
            workers.open()
            shares = share_budget(budget.bytes, workers.server, self.settings, self.record, self.job)
            return self._steps_of_work(workers, budget, shares, plan, past)
        finally:
            workers.close()

    def _steps_of_work(
        self, workers: Workers, budget: Budget, shares: BudgetShares, plan: dict[str, Any], past: Past
    ) -> RunResult:
        config = self._config(budget, shares, workers.is_remote)
        expectation = Expectation(
            self.job, plan["stages"], self.began_s + self._compiled_s, self._compiled_s < _COMPILED_S, self._is_part
        )
        predictors = expectation.models(config.max_block_bytes)
        config.expected_s = expectation.seconds_per_byte
        self._note_start(workers, config, shares, expectation, predictors, plan, past)
        total = past.ledger
        self._monitor = self._make_monitor(config, plan, past)
        committer = Committer(self.dir.output, self.dir.quarantine, self.dir.log, workers.wake, self.dir.remote)
        share, supervisor, orders = 0.0, None, AlertOrders()
        counters: Counter[str] = Counter()
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
                supervisor = Supervisor(config, cursor, predictors, step, orders)
                self._drive(supervisor, workers, committer, total, target)
                if step and self._gives_up(supervisor, target):
                    retract(self.dir, step)
                    total = self.dir.recover(self._plain_size).ledger
                    break
                total.merge(supervisor.queue.ledger)
                self._read_bytes += supervisor.queue.ledger.read_bytes
                self._first_failure = self._first_failure or supervisor.status.first_failure
                counters.update(supervisor.status.counters.as_dict())
                self._check_stopped(supervisor, total)
                share = target
            self._reconcile_schemas(config, predictors, workers, committer, total)
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
        workers: Workers,
        config: Config,
        shares: BudgetShares,
        expectation: Expectation,
        predictors: list[Predictor],
        plan: dict[str, Any],
        past: Past,
    ) -> None:
        """Record every setting with its reason, and the prediction for this run, before any work is done."""
        self._outcome = expectation.outcome
        note_shares(self.record, self.settings, shares, config, self.job, workers.server)
        note_sizes(self.record, self.settings, self.inputs, config, len(self.job.segments), self.dir.scratch)
        note_models(self.record, predictors, expectation.from_profile, len(expectation.past))
        expectation.begin(self.inputs, config, shares, predictors, len(plan["steps"]), past.ledger)
        note_prediction(self.record, expectation.prediction)
        self._keep_record(expectation.prediction)

    def _drive(
        self, supervisor: Supervisor, workers: Workers, committer: Committer, before: Ledger, target: float
    ) -> None:
        assert self._monitor is not None
        driver = EventLoop(
            supervisor, workers, committer, self._saw, self._monitor, lambda up: self._admit(up, supervisor.config)
        )
        self._monitor.begin(supervisor)
        try:
            driver.run(lambda now: self._tick(driver, before, target, now))
        except KeyboardInterrupt:
            try:
                self.progress({"phase": "interrupted"})
            finally:
                driver.stop("interrupted")
            raise
        finally:
            self._tick(driver, before, target, time.monotonic(), final=True)

    def _tick(self, driver: EventLoop, before: Ledger, target: float, now: float, final: bool = False) -> None:
        if self._too_small is not None and not driver.supervisor.pool.nodes and not final:
            raise self._too_small  # no node can take part: the run would wait for ever
        if now - self._shown_s < _SHOW_S and not final:
            return
        self._shown_s = now
        s = driver.supervisor
        note_elsewhere(self.settings.count_caller, driver.used_bytes)
        self._outcome.scratch_bytes = max(self._outcome.scratch_bytes, s.queue.scratch.total_bytes)
        left = s.bytes_left
        state = {
            "phase": "working", "share": target, "seconds": now - self.began_s, "used_bytes": driver.used_bytes,
            "peak_bytes": self._mark.peak_bytes, "budget_bytes": s.config.budget_bytes, "total_bytes": self.inputs.files.total_bytes,
            "left_bytes": left, "documents": before.records.n + s.queue.ledger.records.n + s.queue.under_way["records"], "written": before.written.n + s.queue.ledger.written.n,
            "dropped": before.n_dropped + s.queue.ledger.n_dropped + s.queue.under_way["dropped"],
            "quarantined": before.quarantined.n + s.queue.ledger.quarantined.n + s.queue.under_way["quarantined"],
            "read_bytes": self._read_bytes + s.queue.ledger.read_bytes + s.queue.under_way["read_bytes"], "workers": len(s.pool.workers), "level": int(s.pool.pressure.level),
        }  # fmt: skip
        assert self._monitor is not None
        driver.act(self._monitor.tick(state, s, driver.workers, final) or [])
        if not final:
            self.progress(state)

    def _check_stopped(self, supervisor: Supervisor, total: Ledger) -> None:
        """Turn a supervisor that stopped early into the error that says why."""
        if supervisor.status.fatal:
            if supervisor.status.fatal_kind is FatalKind.DISK and disk.is_full(supervisor.status.fatal):
                raise disk.no_room(supervisor.status.fatal, self._places)
            if supervisor.status.fatal_kind is FatalKind.BUDGET:
                raise BudgetError(f"{supervisor.status.fatal}. {total.written.n} documents are committed")
            if supervisor.status.fatal_kind is FatalKind.USAGE:
                raise PipelineError(supervisor.status.fatal)
            if supervisor.status.fatal_kind is FatalKind.INPUT:
                raise RunConflict(
                    f"{supervisor.status.fatal}. Use nothing of the output; start over with fresh (--fresh)"
                )
            raise TamisError(
                f"{supervisor.status.fatal}. Everything committed so far is kept; see {self.dir.path}/worker.log"
            )
        if supervisor.status.stopping:
            raise Incomplete(
                f"{supervisor.status.stopping}. {total.written.n} documents are committed; run the same command again to go on"
            )
        if supervisor.status.infeasible:
            raise Incomplete(supervisor.status.infeasible[0])

    def _fits_disk(self, total: Ledger, done_share: float, next_share: float) -> bool:
        """Return True if the next sampling step fits the disk, judged by what the steps so far took."""
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
        """Return True if a sampling step ran out of memory or disk and the user prefers the sample before it."""
        if self.settings.on_infeasible != "sample":
            return False
        if supervisor.status.fatal_kind is FatalKind.DISK and disk.is_full(supervisor.status.fatal):
            self._say_why_sampled(share, "the disk was full before that was done. Make room")
        elif supervisor.status.infeasible and not supervisor.status.fatal:
            self._say_why_sampled(share, f"{supervisor.status.infeasible[0]}. Give more memory")
        elif supervisor.status.fatal_kind is FatalKind.BUDGET:
            self._say_why_sampled(share, f"{supervisor.status.fatal}. Give more memory")
        return bool(self._why_sampled)

    def _say_why_sampled(self, share: float, why: str) -> None:
        self._why_sampled = f"{'all' if share == 1.0 else f'{share:.0%}'} of them could not be done: {why}"
        self.record.note("sample", share, "adaptation", self._why_sampled)

    def _reconcile_schemas(
        self, config: Config, predictors: list[Predictor], workers: Workers, committer: Committer, total: Ledger
    ) -> None:
        """JSONL -> Parquet: one schema for all files of the run, the union of what partitions found."""
        if self._output_spec().format not in TABLES:
            return
        found = [
            f for f in self.dir.recover(histograms=False).files.values() if f["kind"] == "output" and f.get("schema")
        ]
        files = {f["name"]: f["schema"] for f in found}
        if len(set(files.values())) < 2:
            return
        distinct = sorted({json.dumps([f["schema"], f.get("observed", "{}")]) for f in found})
        self.progress({"phase": "schema"})
        empty = Cursor(type(self.inputs.files)(), [])
        joiner = Supervisor(config, empty, predictors)
        joiner.join_schemas(distinct)
        self._drive(joiner, workers, committer, total, 1.0)
        self._check_stopped(joiner, Ledger())
        union = joiner.schema
        writer = Supervisor(config, Cursor(type(self.inputs.files)(), []), predictors)
        wanted = json.loads(union)[0]
        writer.recast(union, [n for n, s in files.items() if s != wanted], self.dir.target)
        self._drive(writer, workers, committer, total, 1.0)
        self._check_stopped(writer, Ledger())

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
        result.first_failure, result.leaks = self._first_failure, self._leaks
        if result.exit_code and result.first_failure:
            result.message += f". First: {result.first_failure}"
        if status == "sampled":
            told = f"{share:.0%} of the documents were delivered, chosen by their content; {self._why_sampled} and run the same command again"
            result.exit_code = Incomplete.exit_code
            result.message = f"{told}. {result.message}" if result.message else told
        if problems:
            result.exit_code = ConservationError.exit_code
            result.message = "records in and records out do not add up: " + "; ".join(problems)
        plan["steps"] = [s for s in plan["steps"] if s <= share]
        self.dir.write_json("steps.json", {"steps": plan["steps"]})
        self.dir.write_json(
            "manifest.json",
            {
                "run_id": plan["run_id"], "steps": plan["steps"], "status": result.status, "share": share, "exit_code": result.exit_code,
                "message": result.message, "ledger": past.ledger.to_dict(), "content_hash": f"{past.ledger.content.identity:032x}",
                "seconds": round(result.seconds, 3), "budget_bytes": budget.bytes, "peak_bytes": result.peak_bytes, "caller_bytes": result.caller_bytes, "counters": counters,
                "read_bytes": self._read_bytes,
                "n_files": past.n_files, "histograms": tables(past.ledger, self.job.rules()), "prediction": prediction, "passed_over": result.passed_over,
            },
        )  # fmt: skip
        return result


def _agree(done: dict[str, Any], past: Past) -> bool:
    """Return True if the log still holds what the manifest reports as written.

    A run whose log was lost does not count as finished.
    """
    written = done.get("ledger", {}).get("written")
    return written is None or written == past.ledger.to_dict()["written"]
