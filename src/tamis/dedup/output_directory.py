"""The output of a workflow of several passes: its lock, a fresh start, and cleaning up after a call that did nothing.

Used by deduplications (workflow.py) and by curations (tamis/curation). Does not cover the files between passes
(work_directory.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from tamis import files
from tamis.engine.run import disk
from tamis.engine.run.input_identity import identify_inputs
from tamis.engine.run.output.directory import RunDir, make_output, own_run_dir
from tamis.engine.run_record import FILE as RUN_RECORD
from tamis.errors import BudgetError, RunConflict, StoreError, UsageError
from tamis.stores.run_locations import local_output_dir, run_dir_of

if TYPE_CHECKING:
    from tamis.engine.schema import InputIdentity
    from tamis.formats.input_files.listing import FileList

_MAX_NAMED = 3


class OutputContents(Protocol):
    """The contents of an output, as far as locking it concerns them. Implemented by workflows."""

    def check_output(self, run: RunDir) -> None:
        """Refuse an output or an input before anything is changed."""

    def forget(self) -> None:
        """Remove what earlier calls wrote in addition to the run in the output."""

    def open_work(self) -> str:
        """Find or create the folder for files between passes and return its path."""

    def remove_work(self) -> None:
        """Remove the files between passes, wherever they are; files of others stay."""

    def has_commits(self) -> bool:
        """Return True if there is anything that another call could resume from."""


class OutputDirectory:
    """The folder or bucket that a workflow writes to, with its run directory.

    `writer`: what writes here, in messages. `record_name`: the file of the run directory that is written when
    everything is done.
    """

    def __init__(self, path: str, writer: str, record_name: str) -> None:
        self.path = path
        self.home = local_output_dir(path)
        self.run_dir = run_dir_of(path)
        self.record_name = record_name
        self._writer = writer

    @property
    def run(self) -> RunDir:
        """The run whose output this is: that of the last pass."""
        return RunDir(self.path)

    @contextlib.contextmanager
    def locked(self, contents: OutputContents, fresh: bool) -> Iterator[None]:
        """Hold the output; start over if `fresh`.

        A call that fails before anything was committed leaves nothing behind.
        """
        run = self.run
        contents.check_output(run)
        absent = [path for path in (self.home, self.run_dir) if not os.path.lexists(path)]
        own_run_dir(self.run_dir)
        busy = f"another {self._writer} is writing to {self.path}; wait for it"
        with files.locked(os.path.join(self.run_dir, "dedup.lock"), busy):
            if fresh or run.is_half_forgotten() or run.is_abandoned():
                with run.open():
                    run.begin_to_forget()
                    contents.forget()
                    run.forget()
            else:
                run.bring_files(self.record_name)
            make_output(self.home)
            work = contents.open_work()
            try:
                yield
            except OSError as exc:
                raise disk.explained(exc, [self.home, work]) from exc
            except (UsageError, BudgetError, RunConflict):  # the messages of others refer to logs, which stay
                if not contents.has_commits():
                    contents.remove_work()
                    self._remove(absent)
                raise

    def _remove(self, absent: list[str]) -> None:
        if self.run_dir in absent:
            shutil.rmtree(self.run_dir, ignore_errors=True)
        if self.home in absent:
            with contextlib.suppress(OSError):  # another process uses it by now
                os.rmdir(self.home)

    @property
    def record_path(self) -> str:
        """The file with the record that everything is done."""
        return os.path.join(self.run_dir, self.record_name)

    def read_record(self) -> Any:
        """Return what was recorded when everything was done; None if it is not done."""
        return files.read_json(self.record_path)

    def check_input(self, files: FileList, inputs: InputIdentity | None = None) -> None:
        """Raise RunConflict if what is done was done with other input files than these.

        `inputs`: those that were read, where the last pass read something else.
        """
        if inputs is None:
            plan = self.run.read_plan()
            inputs = None if plan is None else plan.inputs
        changes = [] if inputs is None else inputs.changes(identify_inputs(files))
        if changes:
            more = f" (and {len(changes) - _MAX_NAMED} more)" if len(changes) > _MAX_NAMED else ""
            raise RunConflict(
                f"{self.path} already has the result of other input: {'; '.join(changes[:_MAX_NAMED])}{more}. Give "
                "another output, or start over with fresh (--fresh)"
            )

    def keep_end(self) -> None:
        """Send what describes the whole run to the bucket, if the output is in one."""
        with contextlib.suppress(StoreError):  # the run is finished, whatever becomes of its page
            self.run.keep_files(RUN_RECORD, "report.html")

    def write_record(self, record: Any, *keep: str) -> None:
        """Record that everything is done. `keep`: folders of the run directory that stay with it in a bucket."""
        files.write_json(self.record_path, record)
        self.run.keep_files(*keep, self.record_name)
