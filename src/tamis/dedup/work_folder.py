"""The folder of a deduplication between its calls: opened, locked, recognised, removed; and the ids that lie beside it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from tamis import files
from tamis.dedup.held_output import HeldOutput
from tamis.dedup.passes import Passes
from tamis.dedup.progress_files import read_json, write_json
from tamis.engine.job import make_job
from tamis.engine.run.input_identity import InputGuard, InputIdentity
from tamis.engine.run.inputs import find_inputs
from tamis.engine.run.output.directory import RunDir, remove_own_folder
from tamis.errors import PipelineError, RunConflict, StoreError, UsageError
from tamis.memory.sampler import Mark
from tamis.pipeline import Pipeline
from tamis.pipeline.passes import Progress
from tamis.stages.base import ProcessingStage
from tamis.stores import scratch_files
from tamis.stores.homes import settle
from tamis.stores.told_scratch import register, remove_below
from tamis.stores.urls import is_bucket, scratch_url

if TYPE_CHECKING:
    from tamis.dedup.nemo_compat.id_files import IdFiles
    from tamis.formats.input_files.listing import FileList

_OTHER_SCRATCH = "start over with fresh (--fresh), or give another --scratch"
_WORK_NAME = re.compile(r"tamis-dedup-[0-9a-f]{16}")


class WorkFolder(HeldOutput):
    """What a workflow keeps on disk while it is under way; workflow.py does the passes."""

    called = "deduplication"
    noted_in = "dedup.json"

    def __init__(
        self, passes: Passes, settings: Mapping[str, Any], progress: Progress | bool | None = None, executor: Any = None
    ) -> None:
        super().__init__(passes.output, settings, executor)
        self.passes, self._asked = passes, progress
        if self.settings.get("keep_rejected") and passes.writer is None and passes.step is None:
            raise UsageError("keep_rejected: duplicates are only found here, and nothing is removed; leave it out")
        self.work = os.path.join(self.run_dir, "dedup")
        self.duplicates = os.path.join(self.run_dir, "duplicates")
        self.far = ""  # where of this folder lies what grows with the input, if scratch is in a bucket
        self.scratch_bytes = 0
        self._mark = Mark()  # of the memory in use
        self._guard: InputGuard | None = None
        self._unchecked: dict[str, str] = {}  # files of passes, with their checksums

    def _check_output(self, place: RunDir) -> None:
        if self._done() is None:  # one that ended here may have ids of duplicates beside it (documented/finding.py)
            ids = self.passes.ids
            place.check_foreign("ignore", () if ids is None else (os.path.basename(ids.folder),))
        if self.fresh:
            self._files()  # refuses an input that lies in the output, before that is removed

    def _open_work(self) -> None:
        """Open the work folder in the run directory, or in the scratch folder.

        In the scratch folder it has a name that cannot be guessed, which the run directory records. A run resumed
        without --scratch continues where it was; with another one it starts over there. If scratch is in a bucket,
        the work folder is the one in the run directory and holds small files; keys, texts and tables are stored in
        the bucket, also below such a name.
        """
        scratch = self.settings.get("scratch")
        if scratch is not None and "://" in str(scratch):
            scratch = scratch_url(str(scratch))
        self.far = self._told_far()
        if self.far and scratch is not None and os.path.dirname(self.far) != str(scratch):
            self.remove_work()
            if self.far:
                raise StoreError(
                    f"{self.far}: what an earlier call left there cannot be removed now; run the same command again when the store answers, "
                    "or start over with fresh (--fresh), which leaves it there"
                )
        if self.far and scratch is None:
            scratch = self.settings["scratch"] = os.path.dirname(self.far)
        if scratch is not None and is_bucket(str(scratch)):
            self._open_far(str(scratch))
            return
        told = self._told_work()
        if told is not None and scratch is not None and os.path.dirname(told) != os.path.abspath(str(scratch)):
            self.remove_work()
            told = None
        if told is not None:
            self.work = told
        elif scratch is not None:
            files.check_scratch_parent(str(scratch))
            self.work = files.unguessable(str(scratch), "tamis-dedup-")
            register(self._pointer, self.work)
        files.own_folder(self.work, _OTHER_SCRATCH)

    def _open_far(self, scratch: str) -> None:
        self.work = os.path.join(self.run_dir, "dedup")
        if not self.far:
            self.remove_work()
            self.far = scratch_files.new_place(scratch, "tamis-dedup-")
            write_json(self._pointer, {"far": self.far})  # first: what nobody knows of would stay
            try:
                scratch_files.probe(self.far)
            except StoreError:  # a call that could do nothing claims nothing: the next may name another place, or none
                files.remove(self._pointer)
                raise
        files.own_folder(self.work, _OTHER_SCRATCH)

    def _told_far(self) -> str:
        """Return the bucket location that this output's run uses for scratch; empty if there is none."""
        told = (read_json(self._pointer) or {}).get("far", "")
        return told if is_bucket(told) and _WORK_NAME.fullmatch(os.path.basename(told)) else ""

    def _told_work(self) -> str | None:
        """Return the folder in scratch that this output's run uses, or None.

        Raises RunConflict if others can write to it.
        """
        told = (read_json(self._pointer) or {}).get("path", "")
        if isinstance(told, str) and _WORK_NAME.fullmatch(os.path.basename(told)):
            return told if files.check_own_folder(told, _OTHER_SCRATCH) else None
        scratch = self.settings.get("scratch")
        if scratch is None:
            return None
        # Earlier versions gave it a name that could be guessed: what others have put there is not ours.
        key = hashlib.blake2b(os.path.abspath(self.output).encode("utf-8", "surrogateescape"), digest_size=8)
        old = os.path.join(os.path.abspath(str(scratch)), f"tamis-dedup-{key.hexdigest()}")
        with contextlib.suppress(RunConflict):
            if files.check_own_folder(old, _OTHER_SCRATCH):
                register(self._pointer, old)  # so that it is removed as any other
                return old
        return None

    def remove_work(self) -> None:
        remove_below(self.run_dir)
        remove_own_folder(os.path.join(self.run_dir, "dedup"))
        self.far = self._told_far()  # a store that did not let us: it stays known, the same command removes it

    def _output_of(self, folder: str) -> str:
        """Return the location of the files of a pass; its run directory is always in the work folder."""
        if not self.far:
            return os.path.join(self.work, folder)
        url = f"{self.far}/{folder}"
        settle(url, os.path.join(self.work, folder))
        return url

    def table_of(self, name: str) -> str:
        """Return the path of a decision table for the passes that read it (stores/scratch_files.py: `placed`)."""
        return os.path.join(self.far or self.work, name)

    def _drop(self, name: str) -> None:
        """Delete a folder of a pass or of a decision, or a file."""
        path = os.path.join(self.work, name)
        remove_below(path)  # of a pass that was killed
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else files.remove(path)
        if self.far:
            scratch_files.remove_tree(f"{self.far}/{name}")

    @property
    def _pointer(self) -> str:
        return os.path.join(self.run_dir, "work.json")

    def has_commits(self) -> bool:
        if self._done() is not None or RunDir(self.output).has_commits():
            return True
        with contextlib.suppress(OSError), os.scandir(self.work) as entries:
            return any(RunDir(e.path).has_commits() for e in entries)
        return False

    def _identity(self) -> dict[str, Any]:
        return {"name": self.passes.name, **self.passes.identity}

    def _same(self, earlier: dict[str, Any] | None) -> None:
        now = json.loads(json.dumps(self._identity()))
        changed = sorted(k for k in {*(earlier or {}), *now} if (earlier or {}).get(k) != now.get(k))
        if earlier is None or not changed:
            return
        if not self.has_commits():  # a call that was killed before it did anything claims nothing
            self.remove_work()
            self._open_work()
            return
        raise RunConflict(
            f"{self.output} holds another deduplication: {changed[0]} was {earlier.get(changed[0])!r} and is "
            f"{now.get(changed[0])!r} now; give another output, or start over with fresh (--fresh)"
        )

    def _told(self, name: str) -> Any:
        return read_json(os.path.join(self.work, name))

    def _files(self) -> FileList:
        """List the input files as they are now."""
        job = make_job(self.passes.name, Pipeline(self.passes.name, stages=[self._source()]).build())
        return find_inputs(job, None, None, self.work, scratch=self.settings.get("scratch")).files

    def _source(self) -> ProcessingStage[Any, Any]:
        """Return a fresh reader of the input, which never includes the output of this deduplication."""
        source: Any = self.passes.source()
        source.leave_out = (self.passes.step.output if self.passes.step is not None else self.output,)
        return cast("ProcessingStage[Any, Any]", source)

    @property
    def guard(self) -> InputGuard:
        """The check that every pass reads the input of the first one; a curation has one for all its groups."""
        if self._guard is None:
            self._guard = InputGuard(os.path.join(self.work, "inputs.json"))
        return self._guard

    # -- ids beside the run directory ----------------------------------------------------------------------------------
    def _note(self, done: dict[str, Any]) -> None:
        write_json(os.path.join(self.run_dir, self.noted_in), done)
        RunDir(self.output).keep_files(self.noted_in)

    def _write_ids(self, done: dict[str, Any]) -> None:
        """Write the ids of removed documents if they are requested and missing.

        `done`: what was recorded when everything was decided.
        """
        table = self.passes.ids
        if table is None or not table.is_asked:
            return
        # Earlier versions noted neither the input nor which ids there are, and wrote no others than required ones.
        is_old = "inputs" not in done and table.is_required
        noted = table.about() if is_old else done.get("ids")
        if noted == table.about() and table.is_whole(done["summary"]["n_duplicates"]):
            return
        try:
            self._make_ids(table, done)
        except (PipelineError, RunConflict) as exc:
            if table.is_required:
                raise
            warnings.warn(
                f"{self.passes.name}: id_field={table.id_field!r}: no ids were written to {table.folder} ({exc}). The duplicates are listed in {self.duplicates}",
                stacklevel=2,
            )

    def _make_ids(self, table: IdFiles, done: dict[str, Any]) -> None:
        """Documents are known by their place: the files must be those that were compared."""
        if "inputs" not in done:
            raise RunConflict(
                "an earlier version found the duplicates and did not note in which files; start over with fresh (--fresh)"
            )
        changes = InputIdentity.from_dict(done["inputs"]).changes(InputIdentity.of(self._files()))
        if changes:
            raise RunConflict(f"the input changed after it was compared: {changes[0]}; start over with fresh (--fresh)")
        self._note({k: v for k, v in done.items() if k != "ids"})  # until these are whole
        table.write(self.duplicates, self._source(), done["inputs"]["paths"], self._execute)
        self._note({**done, "ids": table.about()})

    def _forget(self) -> None:
        if self.passes.ids is not None:
            self.passes.ids.forget()
        super()._forget()
