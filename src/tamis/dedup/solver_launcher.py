"""Starting the solver between two passes: its task, its memory, and the checksums of the files it reads."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tamis.dedup.pass_runner import PassRunner
from tamis.dedup.planning import check_room, solver_room
from tamis.dedup.solver_task import NamedStep, SolverStep, SolverTask
from tamis.dedup.state import IndexPins
from tamis.dedup.task_process import EarlyProcess
from tamis.dedup.work_directory import WorkDirectory
from tamis.engine.run.run_result import RunResult

_MODULE = "tamis.dedup.solver"
_PREPARED_SHARE = 8  # the room of the solver must be this many times what a preparation takes
_THREAD_BYTES = 64_000_000  # of the room, for each thread that compares texts


class SolverLauncher:
    """Starts the solver of one deduplication. `duplicates`: the folder for the tables that people read."""

    def __init__(self, runner: PassRunner, work: WorkDirectory, duplicates: str) -> None:
        self._runner, self._work, self._duplicates = runner, work, duplicates
        self._early: EarlyProcess | None = None
        self._unchecked: dict[str, str] = {}  # files of passes that no step has read yet, with their checksums

    def prepare(self, step: SolverStep | None) -> None:
        """Start the process for a step whose start takes long, if the passes meanwhile keep most of the budget."""
        preparation = step.preparation() if step is not None else None
        if preparation is not None and self.room_bytes() >= _PREPARED_SHARE * preparation.host_bytes:
            self._early = self._runner.start_early(
                self._work.path, _MODULE, preparation.function, preparation.host_bytes
            )

    def discard(self) -> None:
        """End a process that was prepared for nothing."""
        if self._early is not None:
            self._early.close()
            self._early = None

    def room_bytes(self) -> int:
        """Return the memory for keys and groups in the solver."""
        return solver_room(self._runner.settings.budget_bytes(), bool(self._work.bucket_url))

    def files_of(self, result: RunResult) -> list[str]:
        """Return the files of a pass, and register their checksums, which the next step that reads them compares."""
        checks = {os.path.join(result.output, f.name): f.check or "" for f in result.files}
        self._unchecked.update(checks)
        return list(checks)

    def solve(self, steps: Sequence[SolverStep], records: Sequence[str], label: str = "decision") -> None:
        """Have these steps performed. `records`: the files of the first pass; `label`: of the recorded decision."""
        settings, early = self._runner.settings, self._early
        self._early = None
        if early is not None:
            early.leave_budget()
        room_bytes = self.room_bytes()
        check_room(settings.budget_bytes(), bool(self._work.bucket_url))
        task = SolverTask(
            steps=[NamedStep.of(step) for step in steps],
            records=list(records),
            duplicates=self._duplicates,
            room_bytes=room_bytes,
            # As many as workers, each with memory for the texts that it compares.
            n_threads=max(1, min(settings.n_workers(), room_bytes // _THREAD_BYTES)),
            gpu_bytes=settings.gpu_bytes(),
            checks=self._checks_of([*records, *(path for step in steps for path in step.files())]),
            index_pins=(self._work.state.index_pins.read() or IndexPins()).pins,
        )
        bucket_url = self._work.bucket_url
        self._runner.run_task(self._work.path, task, _MODULE, label, bucket_url, early)

    def _checks_of(self, paths: Sequence[str]) -> dict[str, str]:
        return {path: check for path in paths if (check := self._unchecked.pop(path, ""))}
