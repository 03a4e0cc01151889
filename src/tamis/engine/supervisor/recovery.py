"""Recovery: carries out what the retry policy decides about a failed unit. Pure.

Queues the unit again, cuts it, gives it up, or ends the run.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.engine.activity import READING, WRITING, in_words
from tamis.engine.messages import Failure, FailureKind
from tamis.engine.schema import EventKind
from tamis.engine.supervisor.actions import Action, Note
from tamis.engine.supervisor.handles import Handles
from tamis.engine.supervisor.memory_arbiter import MemoryArbiter, significant_request
from tamis.engine.supervisor.retry_policy import (
    Misfit,
    RetryAction,
    RetryDecision,
    RetryPolicy,
    SetupDeathAction,
    describe_failure,
)
from tamis.engine.supervisor.shutdown import Shutdown
from tamis.engine.supervisor.state import FatalKind, RunState, Worker
from tamis.engine.supervisor.unproven import UnprovenStages
from tamis.engine.supervisor.work_queue import WorkQueue
from tamis.engine.supervisor.worker_pool import WorkerPool
from tamis.engine.units import Mode, Unit


class Recovery:
    """Called with a failed unit, which has left its worker and is in no queue, and the worker that had it."""

    def __init__(
        self,
        policy: RetryPolicy,
        status: RunState,
        pool: WorkerPool,
        queue: WorkQueue,
        arbiter: MemoryArbiter,
        handles: Handles,
        shutdown: Shutdown,
        unproven: UnprovenStages,
    ) -> None:
        self._policy, self._status, self._pool, self._queue = policy, status, pool, queue
        self._arbiter, self._handles, self._shutdown, self._unproven = arbiter, handles, shutdown, unproven

    def recover(self, unit: Unit, worker: Worker, report: Failure) -> list[Action]:
        """Decide about a unit that failed, and carry the decision out."""
        if unit.rewrite is not None and unit.rewrite.samples:
            return []  # for the report alone: the run does without
        is_fresh = worker.n_units == 0
        if report.kind is FailureKind.THREADS and is_fresh:
            report = replace(report, kind=FailureKind.MEMORY)
        if report.kind is FailureKind.DISK:
            return self._shutdown.fail(FatalKind.DISK, report.error)
        if unit.mode in (Mode.RUN, Mode.QUARANTINE) and unit.partition not in self._queue.partitions:
            return self._queue.scratch.free(unit.scratch_paths)  # given up because of another of its units
        if report.kind is FailureKind.DEVICE:
            return self._recover_from_full_device(unit, worker, report)
        if self._unproven.add(unit, report):
            blame = self._unproven.blame()
            return self._shutdown.fail(*blame) if blame is not None else []
        self._learn(unit, worker, report)
        decision = self._policy.decide(unit, report, self._had_everything(worker), is_fresh, not worker.has_failed)
        actions: list[Action] = []
        if decision.note:
            facts = {"unit": unit.id, "kind": report.kind, "stage": report.stage, "error": report.error}
            actions.append(Note(EventKind.RECOVERY, decision.note, facts))
        return actions + self._carry_out(decision, worker, report)

    def recover_from_setup_death(self, unit: Unit, worker: Worker, report: Failure) -> list[Action]:
        """Handle a worker that died while setting up a stage; no document is to blame."""
        report = replace(report, in_setup=True)
        if report.kind is FailureKind.MEMORY:
            return self.recover(unit, worker, report)
        action = self._policy.after_setup_death()
        if action is SetupDeathAction.FAIL:
            n = self._policy.n_setup_deaths
            return self._shutdown.fail(
                FatalKind.STAGE, f"{in_words(report.stage)} ended {n} workers in a row: {report.error}"
            )
        unit.alone = action is SetupDeathAction.ALONE
        return [Note(EventKind.RECOVERY, describe_failure(report), {"unit": unit.id}), *self._retry(unit)]

    def _learn(self, unit: Unit, worker: Worker, report: Failure) -> None:
        """Record what the failure shows about needs, before the decision."""
        if report.kind is FailureKind.MEMORY:
            self._status.counters.memory_failures += 1
            self._arbiter.learn_failure(worker, unit, report)
            if unit.mode is Mode.FEED:
                # A smaller node that cannot do it either says less than a larger one did.
                unit.need_bytes = max(unit.need_bytes, self._arbiter.feed_need(worker, report))
        elif report.kind is FailureKind.DESCRIPTORS:
            self._handles.ran_out(worker)

    def _had_everything(self, worker: Worker) -> bool:
        """Return True if a worker had as much memory as any node has."""
        nodes = self._pool.nodes.values()
        return bool(nodes) and all(node.arbiter.is_everything(worker.cap_bytes) for node in nodes)

    def _carry_out(self, decision: RetryDecision, worker: Worker, report: Failure) -> list[Action]:
        unit = decision.unit
        match decision.action:
            case RetryAction.FAIL:
                return self._shutdown.fail(_fatal_kind(report), describe_failure(report))
            case RetryAction.INFEASIBLE | RetryAction.UNFIT:
                return self._give_up_misfit(decision, worker, report)
            case RetryAction.UNREADABLE:
                self._status.infeasible.append(decision.note)
                return self._queue.give_up(unit)
            case RetryAction.FEED:
                return self._queue.feed(unit)
            case RetryAction.SPLIT:
                self._status.counters.splits += 1
                self._queue.split(unit, decision.n_failures)
                return []
            case RetryAction.QUARANTINE:
                self._status.n_stage_failures += 1
                self._status.last_failure = in_words(unit.stage) or "a stage"
                self._status.first_failure = self._status.first_failure or describe_failure(report, unit)
                return self._retry(unit)
            case RetryAction.RETRY | RetryAction.ALONE | RetryAction.DESCRIBE:
                return self._retry(unit)

    def _retry(self, unit: Unit) -> list[Action]:
        self._status.counters.retries += 1
        self._queue.requeue(unit)
        return []

    def _recover_from_full_device(self, unit: Unit, worker: Worker, report: Failure) -> list[Action]:
        """Continue with the workers that fit their GPUs.

        Where this was the only one: end the run if the stages never fitted, else try again, for another process may
        have taken the memory for a while.
        """
        node = self._pool.node_of(worker)
        n_others = len(node.living(worker.segment)) if node is not None else 0
        failure = describe_failure(report)
        if node is not None and n_others:
            node.devices.limit_workers(worker.segment, n_others)
            text = f"no room on a GPU for another worker; the run continues with {n_others}: {failure}"
            note = Note(EventKind.DEVICE, text, {"segment": worker.segment, "workers": n_others, "node": worker.node})
        else:
            action = self._policy.after_setup_death()
            if not self._arbiter.was_set_up(worker.segment):
                return self._shutdown.fail(FatalKind.BUDGET, f"one worker alone does not fit its GPU: {failure}")
            if action is SetupDeathAction.FAIL:
                return self._shutdown.fail(FatalKind.WORKER, f"a worker does not fit its GPU any more: {failure}")
            note = Note(EventKind.DEVICE, f"no room on a GPU, trying again: {failure}", {"segment": worker.segment})
        return [note, *self._retry(unit)]

    def _give_up_misfit(self, decision: RetryDecision, worker: Worker, report: Failure) -> list[Action]:
        """Name the budget that one document, or setting up a stage, would need if it exceeds the whole pool.

        The rest of the run continues, unless it is the stage that needs so much, whatever the documents.
        """
        unit = decision.unit
        misfit = Misfit(
            report.stage,
            unit.largest_record,
            significant_request(worker, report),
            worker.cap_bytes,
            self._arbiter.budget_for(self._arbiter.need_of(worker, unit, report)),
        )
        if decision.action is RetryAction.UNFIT:
            return self._shutdown.fail(FatalKind.BUDGET, f"{decision.note}: {misfit.advice()}")
        if unit.mode is Mode.FEED:
            self._status.infeasible.append(f"{decision.note}: {misfit.advice()}")
            return self._queue.give_up(unit)
        if self._policy.add_misfit(misfit, has_succeeded=self._arbiter.n_done[unit.segment] > 0):
            return self._shutdown.fail(FatalKind.BUDGET, self._policy.blame_stage())
        self._status.infeasible.append(f"{decision.note}: {misfit.advice(may_quarantine=misfit.is_large)}")
        return self._queue.give_up(unit)


def _fatal_kind(report: Failure) -> FatalKind:
    """Return what is to blame for a failure that ends the run."""
    if report.is_usage:
        return FatalKind.USAGE
    if report.kind is FailureKind.INPUT:
        return FatalKind.INPUT
    is_stage = bool(report.stage) and report.stage not in (READING, WRITING)
    return FatalKind.STAGE if is_stage and report.kind is not FailureKind.KILLED else FatalKind.WORKER
