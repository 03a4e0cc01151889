"""Ending a run early: on request, after a fatal failure, or because a stage fails on nearly everything. Pure."""

from __future__ import annotations

from tamis.engine.schema import EventKind
from tamis.engine.supervisor.actions import Action, Note
from tamis.engine.supervisor.state import FatalKind, KillReason, RunState
from tamis.engine.supervisor.work_queue import WorkQueue
from tamis.engine.supervisor.worker_pool import WorkerPool

_MIN_FAILURES = 20  # documents that a stage fails on before their rate counts
_MIN_RATE = 0.01


class Shutdown:
    """Stops the workers of a run and commits what they have done."""

    def __init__(self, status: RunState, pool: WorkerPool, queue: WorkQueue) -> None:
        self._status, self._pool, self._queue = status, pool, queue

    def stop(self, reason: str) -> list[Action]:
        """Kill all workers, commit what is done of split partitions, start nothing new."""
        self._status.stopping = self._status.stopping or reason
        actions: list[Action] = [Note(EventKind.STOP, reason)]
        for worker in self._pool.workers.values():
            actions += self._pool.kill(worker, KillReason.STOPPING)
        if self._status.fatal_kind is not FatalKind.DISK:
            actions += self._queue.begin_commits()
        return actions

    def fail(self, kind: FatalKind, reason: str) -> list[Action]:
        """Stop the run for an error that retrying cannot cure; the first one is reported."""
        if not self._status.fatal:
            self._status.fatal, self._status.fatal_kind = reason, kind
        return self.stop(reason)

    def check_failure_rate(self) -> list[Action]:
        """Stop if a stage fails on (nearly) everything: the mistake is in the stage, not in the data."""
        status, ledger = self._status, self._queue.ledger
        n = status.n_stage_failures
        n_records = max(ledger.records.n - ledger.not_sampled.n, status.n_seen, n)
        limit = max(self._pool.config.quarantine_share * 10, _MIN_RATE)
        if n < _MIN_FAILURES or n <= limit * n_records or status.stopping:
            return []
        first = f"; first: {status.first_failure}" if status.first_failure else ""
        return self.stop(
            f"{status.last_failure} fails on {n} of {n_records} documents so far: see `tamis quarantine`{first}"
        )
