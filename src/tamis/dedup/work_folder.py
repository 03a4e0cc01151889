"""The folder of a deduplication between its calls: opened, locked, recognised, removed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from tamis import files
from tamis.dedup.kinds import Passes
from tamis.dedup.progress_files import read_json, write_json
from tamis.engine.run import disk
from tamis.errors import (
    BudgetError,
    RunConflict,
    UsageError,
)
from tamis.memory.lookout import Mark
from tamis.pipeline import Pipeline
from tamis.pipeline.passes import Progress
from tamis.stages.base import ProcessingStage
from tamis.stores.homes import local_of

if TYPE_CHECKING:
    from tamis.backends.warm_process import WarmProcess
    from tamis.engine.run.directory import RunDir
    from tamis.formats.input_files.listing import FileList

_OTHER_SCRATCH = "start over with fresh (--fresh), or give another --scratch"
_WORK_NAME = re.compile(r"tamis-dedup-[0-9a-f]{16}")


class WorkFolder:
    """What a workflow keeps on disk while it is under way; workflow.py does the passes."""

    def __init__(
        self,
        passes: Passes,
        settings: Mapping[str, Any],
        progress: Progress | bool | None = None,
        executor: Any = None,
    ) -> None:
        self.passes, self.executor = passes, executor
        self.settings = dict(settings)
        self.fresh = bool(self.settings.pop("fresh", False))
        self.shard = self.settings.pop("shard", None)  # make the keys of this part of the input, and no more
        self.merge = bool(self.settings.pop("merge", False))  # take the keys that shards made
        self.watch = self.settings.pop("watch", None)
        self.progress: Progress = lambda _: None
        self._asked = progress
        self.home = local_of(passes.output)
        self.run_dir = os.path.join(self.home, "_tamis")
        self.work = os.path.join(self.run_dir, "dedup")
        self.duplicates = os.path.join(self.run_dir, "duplicates")
        self.scratch_bytes = 0
        self._mark = Mark()  # of the memory in use
        self._warm_process: WarmProcess | None = None
        self._unchecked: dict[str, str] = {}  # files of passes, with their checksums

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the output. A call that ends in an error before anything was committed leaves nothing of its own behind."""
        from tamis.engine.run.directory import RunDir, own_run_dir

        place = RunDir(self.passes.output)
        if (
            self._done() is None
        ):  # one that ended here may have ids of duplicates beside it (documented/parameters_and_results.py)
            place.check_foreign("ignore")
        if self.fresh:
            self._files()  # refuses an input that lies in the output, before that is removed
        absent = [p for p in (self.home, self.run_dir) if not os.path.lexists(p)]
        own_run_dir(self.run_dir)
        busy = f"another deduplication is writing to {self.passes.output}; wait for it"
        with files.locked(os.path.join(self.run_dir, "dedup.lock"), busy):
            if self.fresh:
                self._remove_work()
                place.open()
                try:
                    place.forget()
                finally:
                    place.close()
            else:
                place.bring_files("dedup.json")
            self._open_work()
            try:
                yield
            except OSError as exc:
                raise disk.explained(exc, [self.home, self.work]) from exc
            except (UsageError, BudgetError, RunConflict):  # others refer to logs
                if not self._has_commits():
                    self._abandon(absent)
                raise

    def _open_work(self) -> None:
        """Make or find the folder of what lies between passes: in the run directory, or in the scratch folder.

        There it has a name that cannot be guessed, which the run directory keeps. A run that goes on without --scratch goes on
        where it was; with another one it starts over there.
        """
        scratch = self.settings.get("scratch")
        told = self._told_work()
        if told is not None and scratch is not None and os.path.dirname(told) != os.path.abspath(str(scratch)):
            self._remove_work()
            told = None
        if told is not None:
            self.work = told
        elif scratch is not None:
            files.check_scratch_parent(str(scratch))
            self.work = files.unguessable(str(scratch), "tamis-dedup-")
            write_json(self._pointer, {"path": self.work})  # first: a folder that nobody knows of would stay
        files.own_folder(self.work, _OTHER_SCRATCH)

    def _told_work(self) -> str | None:
        """The folder in scratch that this output's run uses, if there is one; RunConflict if others can write to it."""
        told = (read_json(self._pointer) or {}).get("path", "")
        if isinstance(told, str) and _WORK_NAME.fullmatch(os.path.basename(told)):
            return told if files.check_own_folder(told, _OTHER_SCRATCH) else None
        scratch = self.settings.get("scratch")
        if scratch is None:
            return None
        # Earlier versions gave it a name that could be guessed: what others have put there is not ours.
        key = hashlib.blake2b(os.path.abspath(self.passes.output).encode("utf-8", "surrogateescape"), digest_size=8)
        old = os.path.join(os.path.abspath(str(scratch)), f"tamis-dedup-{key.hexdigest()}")
        with contextlib.suppress(RunConflict):
            return old if files.check_own_folder(old, _OTHER_SCRATCH) else None
        return None

    def _remove_work(self) -> None:
        """Remove what lies between passes, wherever it is; what other users put in its place stays."""
        from tamis.engine.run.directory import remove_own_folder

        with contextlib.suppress(RunConflict):
            if (told := self._told_work()) is not None:
                remove_own_folder(told)
        remove_own_folder(os.path.join(self.run_dir, "dedup"))
        files.remove(self._pointer)

    @property
    def _place(self) -> RunDir:
        from tamis.engine.run.directory import RunDir

        return RunDir(self.passes.output)

    @property
    def _pointer(self) -> str:
        return os.path.join(self.run_dir, "work.json")

    def _has_commits(self) -> bool:
        """Whether anything was done that another call could go on from."""
        from tamis.engine.run.directory import RunDir

        if self._done() is not None or RunDir(self.passes.output).has_commits():
            return True
        with contextlib.suppress(OSError), os.scandir(self.work) as entries:
            return any(RunDir(e.path).has_commits() for e in entries)
        return False

    def _abandon(self, absent: list[str]) -> None:
        """Take back what this call made. `absent`: folders that were not there before it."""
        self._remove_work()
        if self.run_dir in absent:
            shutil.rmtree(self.run_dir, ignore_errors=True)
        if self.home in absent:
            with contextlib.suppress(OSError):  # somebody else uses it by now
                os.rmdir(self.home)

    def _identity(self) -> dict[str, Any]:
        return {"name": self.passes.name, **self.passes.identity}

    def _same(self, earlier: dict[str, Any] | None) -> None:
        now = json.loads(json.dumps(self._identity()))
        changed = sorted(k for k in {*(earlier or {}), *now} if (earlier or {}).get(k) != now.get(k))
        if earlier is None or not changed:
            return
        if not self._has_commits():  # a call that was killed before it did anything claims nothing
            self._remove_work()
            self._open_work()
            return
        raise RunConflict(
            f"{self.passes.output} holds another deduplication: {changed[0]} was {earlier.get(changed[0])!r} and is "
            f"{now.get(changed[0])!r} now; give another output, or start over with fresh (--fresh)"
        )

    def _told(self, name: str) -> Any:
        return read_json(os.path.join(self.work, name))

    def _done(self) -> dict[str, Any] | None:
        done: dict[str, Any] | None = read_json(os.path.join(self.run_dir, "dedup.json"))
        return done

    def _files(self) -> FileList:
        """The input files as they are now."""
        from tamis.engine.job import make_job
        from tamis.engine.run.inputs import find_inputs

        job = make_job(self.passes.name, Pipeline(self.passes.name, stages=[self._source()]).build())
        return find_inputs(job, None, None, self.work).files

    def _source(self) -> ProcessingStage[Any, Any]:
        """A fresh reader of the input, to which the output of this deduplication never belongs."""
        source: Any = self.passes.source()
        source.leave_out = (self.passes.step.output if self.passes.step is not None else self.passes.output,)
        return cast("ProcessingStage[Any, Any]", source)
