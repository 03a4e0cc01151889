"""The run directory of an output: plan, lock, commit log, quarantine, and what an earlier run left there.

plan.json       what this run is: inputs and pipeline      steps.json      sampling steps
commit.log      what is done (commit_log.py)
lock            held while a run works here
staged/         files being written          scratch/   blocks between processes
scratch.json    where the blocks are, if elsewhere (--scratch): in another folder, in a bucket
quarantine/     input that could not be processed, with reasons
boot.json       of files that were not synced: the boot of the machine that wrote them
bookmarks/      until the run ends: where reading of WARC files can begin again (engine/worker/bookmarks.py)
run.sqlite      events, samples, attempts    settings.json  every setting with its reason
manifest.json   at the end: all files, totals, hashes
run.json        the whole run, all passes and sessions (engine/run_record.py)

All of it belongs to the user who runs, and no one else can write to it: a run directory of others is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tamis import files
from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger
from tamis.engine.run import shard
from tamis.engine.run.output.commit import remove_orphans
from tamis.engine.run.output.commit_log import CommitLog, FileTable
from tamis.engine.run.output.names import check_name, folder_of
from tamis.engine.schema import (
    VERSION,
    CommitRecord,
    CommittedFile,
    FileKind,
    Manifest,
    ReplaceRecord,
    RunPlan,
    SamplingSteps,
    read_fields,
)
from tamis.engine.supervisor.coverage import Coverage
from tamis.engine.worker.bookmarks import NAME as BOOKMARKS
from tamis.errors import RunConflict
from tamis.memory import meter
from tamis.stores import scratch_files, scratch_references
from tamis.stores.run_locations import (
    FETCHED,
    LOCKS,
    RUN_DIRECTORY,
    RUN_SUFFIX,
    SHARD_NAME,
    is_run_dir,
    local_output_dir,
    named_output,
    output_of_run_dir,
    run_dir_of,
)
from tamis.stores.urls import is_bucket

if TYPE_CHECKING:
    from tamis.engine.run.output.bucket_output import BucketOutput

_RETRACT_MARK = re.compile(r"retract-([0-9]{1,6})")
_T = TypeVar("_T")
# Of a deduplication or curation, whose last run is this one: the folders between its passes, or where these are, and
# what it decided; and its command.
_OF_WORKFLOWS = {"dedup", "curation", "work.json", "duplicates", "dedup_prediction.json", "command.json", "run.json"}
_DONE = ("manifest.json", "dedup.json", "curation.json")  # of a run, a deduplication, a curation: written at its end
_FORGETTING = "forgetting"
_BOOT = "boot.json"
_OWN_NAMES = {*_OF_WORKFLOWS, *_DONE, _FORGETTING, "plan.json", "initial", "run.sqlite", "staged"}  # before the lock
_LAST = ("commit.log", "plan.json", _FORGETTING)


@dataclass
class Past:
    """The work that earlier attempts have committed, according to the log."""

    _dir: RunDir
    ledger: Ledger = field(default_factory=Ledger)
    done: dict[int, Coverage] = field(default_factory=dict)  # by sampling step
    n_files: int = 0

    @property
    def files(self) -> FileTable:
        return self._dir.files()

    def coverage(self, step: int, plain_size: Callable[[int], int]) -> Coverage:
        """Return what a sampling step has committed."""
        return self.done.get(step) or self.done.setdefault(step, Coverage(plain_size))

    def add(self, record: CommitRecord, plain_size: Callable[[int], int], histograms: bool) -> None:
        """Add a committed unit."""
        self.ledger.merge(record.ledger(histograms))
        coverage = self.coverage(record.sampling_step, plain_size)
        for covered in record.covered:
            coverage.add(*covered)
        self.n_files += sum(file.kind in (FileKind.OUTPUT, FileKind.LISTED) for file in record.files)

    def replace(self, record: ReplaceRecord, contents: dict[str, int]) -> None:
        """Replace committed files by others; `contents`: the sums of those whose schema is known, by name."""
        self.n_files += len(record.files) - len(record.old)
        before = [contents.pop(name, 0) for name in record.old]
        if record.content is not None or any(file.schema is not None for file in record.files):
            # Their records may have another form, or fewer fields.
            after = sum(file.content_sum for file in record.files)
            self.ledger.content.add(0, after - (int(record.content, 16) if record.content else sum(before)))


class RunDir(files.Closing):
    def __init__(self, output: str, scratch: str | None = None) -> None:
        scratch_files.refuse_inside(output, scratch)
        if (named := named_output(output)) != output:
            raise RunConflict(f"{output} is the run directory of {named}; give another output")
        self.remote = _open_bucket(output) if is_bucket(output) else None
        self.target = output if self.remote is None else self.remote.url  # as the user knows it
        self.output = output = local_output_dir(output)
        self.path = run_dir_of(output)
        self.staged = os.path.join(self.path, "staged")
        self.quarantine = os.path.join(self.path, "quarantine")
        self.verdicts = os.path.join(self.path, "verdicts")
        self.scores = os.path.join(self.path, "scores")
        self.rejected = os.path.join(self.path, "rejected")
        self._scratch_parent = None if scratch is None or is_bucket(scratch) else scratch
        self._remote_scratch_parent = scratch if scratch is not None and is_bucket(scratch) else ""
        self.scratch = os.path.join(self.path, "scratch")
        self.remote_scratch = ""  # of this run, for blocks that are too many for this machine (--scratch s3://...)
        self.plan_path = os.path.join(self.path, "plan.json")
        self.log = CommitLog(os.path.join(self.path, "commit.log"))
        self._lock = -1

    # -- opening ------------------------------------------------------------------------------------------------------
    def exists(self) -> bool:
        return os.path.exists(self.plan_path)

    def has_commits(self) -> bool:
        """Return True if anything was committed here.

        An output is claimed by its contents, not by an attempt.
        """
        with contextlib.suppress(OSError):
            return os.path.getsize(self.log.path) > 0
        return False

    def check_foreign(self, mode: str | None, shared: Collection[str] = ()) -> None:
        """Refuse an output that holds something Tamis did not write, unless files are to be added to it.

        `shared`: folders of the output in which files of the user's may stay next to those of a workflow.
        """
        if self.remote is not None:
            self.remote.list_objects()
            is_run = self.remote.has_run
        elif not os.path.exists(self.output):
            return
        elif not os.path.isdir(self.output):
            raise RunConflict(f"{self.output} is a file; give a folder for the output")
        else:
            is_run = self.exists() or self.is_half_forgotten()
        names = [name for name in self.foreign_names() if name.partition("/")[0] not in shared]
        if mode == "error" and (names or is_run):
            raise RunConflict(f"{self.target} exists and is not empty (mode='error'); give another folder")
        if names and not is_run and mode != "append":
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            append = " (in Python and recipes, a writer with mode='append' adds files next to them)" if mode else ""
            raise RunConflict(
                f"{self.target} already holds data that Tamis did not write ({names[0]!r}{more}); give an empty folder"
                + append
            )

    def foreign_names(self) -> list[str]:
        """Return the names in the output other than the run directory, shards and empty folders.

        They are files of this run, or files that this run did not write.
        """
        names = list(self.remote.sizes) if self.remote is not None else _with_data(self.output)
        tops = [(n, n.partition("/")[0]) for n in names if n != RUN_DIRECTORY]
        return [n for n, top in tops if SHARD_NAME.fullmatch(top) is None and not shard.OF_PASS.fullmatch(top)]

    def open(self) -> Self:
        """Create the folders and take the lock. Raises RunConflict when another run works here."""
        own_run_dir(self.path)
        self._lock = files.lock(
            os.path.join(self.path, "lock"),
            f"another run is writing to {self.target}; wait for it, or give another output",
        )
        try:
            if self.is_abandoned():
                self.begin_to_forget()
            make_output(self.output)
            self._make_folders()
            files.sweep(self.path)
            if self.remote is not None:
                # From now on this is more than an image of what the bucket has.
                files.remove(os.path.join(self.path, FETCHED))
                self.remote.open(self.path, self.log)
        except BaseException:
            self.close()
            raise
        return self

    def note_boot(self) -> bool:
        """Record the boot of the machine, before anything is committed without being synced.

        False where that is unknown, and for outputs in a bucket.
        """
        boot = _boot_id()
        if self.remote is None and boot:
            self.write_json(_BOOT, {"id": boot})
        return self.remote is None and bool(boot)

    def may_have_lost_files(self) -> bool:
        """Return True if files were committed without being synced, and the machine has restarted since."""
        noted = self.read_json(_BOOT)
        return noted is not None and noted.get("id") != _boot_id()

    def check_links(self) -> None:
        """Raise RunConflict if nothing could be committed.

        Not checked on opening: a finished run may have been copied anywhere.
        """
        if self.remote is not None:
            return
        if os.stat(self.staged).st_dev != os.stat(self.output).st_dev:
            raise RunConflict(
                f"{self.path} and {self.output} are on different file systems, and files are moved from one to the "
                f"other; move the contents of {self.path} to {os.path.join(self.output, RUN_DIRECTORY)}"
            )
        if not files.has_links(self.staged):
            raise RunConflict(
                f"{self.target} lies on a file system without hard links (or that forbids them), which commits need; "
                "write to another disk "
                "and copy from there, or to s3://"
            )

    def _make_folders(self) -> None:
        files.own_folder(self.staged, _ADVICE.format(path=self.path))
        for folder in (self.quarantine, self.verdicts, self.scores, self.rejected):
            files.own_folder(folder, _ADVICE.format(path=self.path), 0o755)

    def make_scratch(self) -> str:
        """Create an empty scratch folder for blocks.

        Scratch is never needed for recovery, so what an earlier run left is removed.
        """
        self._remove_scratch()
        if self._remote_scratch_parent:
            self.remote_scratch = scratch_files.new_scratch_url(self._remote_scratch_parent, "tamis-")
            self.write_json(
                "scratch.json", {"far": self.remote_scratch}
            )  # first: otherwise a crash would leave it forever
            scratch_files.check_writable(self.remote_scratch)
        if self._scratch_parent is None:
            files.own_folder(self.scratch, _ADVICE.format(path=self.path))
            return self.scratch
        files.check_scratch_parent(self._scratch_parent)
        self.scratch = files.unguessable(self._scratch_parent, "tamis-")
        scratch_references.register(os.path.join(self.path, "scratch.json"), self.scratch)
        try:
            os.mkdir(self.scratch, 0o700)
        except OSError as exc:
            raise RunConflict(f"cannot use {self._scratch_parent} for scratch: {exc.strerror or exc}") from exc
        return self.scratch

    def _remove_scratch(self) -> None:
        """Remove the scratch folders of this run and of earlier ones.

        Whatever scratch.json says, only folders that are ours are removed.
        """
        remove_own_folder(os.path.join(self.path, "scratch"))
        # A folder that cannot be removed stays in scratch.json: the next call tries again.
        scratch_references.remove_referenced_scratch(os.path.join(self.path, "scratch.json"))

    def close(self) -> None:
        if self._lock >= 0:
            if self.remote is not None:
                self.remote.close()
            self._remove_scratch()
            if self.read_json("manifest.json") is not None:  # the run has ended
                remove_own_folder(os.path.join(self.path, BOOKMARKS))
            os.close(self._lock)
            self._lock = -1

    # -- the plan -----------------------------------------------------------------------------------------------------
    def read_plan(self) -> RunPlan | None:
        """Return the plan of the run, None if there is none; raise RunConflict if it is damaged."""
        try:
            with open(self.plan_path, "rb") as file:
                data = json.load(file)
            if isinstance(data, dict) and data.get("version") == VERSION:
                return read_fields(RunPlan, data)
        except FileNotFoundError:
            return None
        except (LookupError, TypeError, ValueError) as exc:
            raise RunConflict(f"{self.plan_path} is damaged ({exc}); start over with fresh=True (--fresh)") from None
        raise RunConflict(f"{self.path} was written by another version of Tamis; start over with fresh=True (--fresh)")

    def write_plan(self, plan: RunPlan) -> None:
        self.write_json("plan.json", plan.to_dict())

    def read_steps(self) -> list[float]:
        """Return the upper ends of the sampling steps; none before the first plan."""
        return _read(SamplingSteps, self.read_json("steps.json") or {}).steps

    def write_steps(self, steps: list[float]) -> None:
        if self.read_steps() != steps:  # the disk may be full
            self.write_json("steps.json", SamplingSteps(steps).to_dict())

    def read_manifest(self) -> Manifest | None:
        """Return how the run ended; None if it has not, or if that cannot be read."""
        data = self.read_json("manifest.json")
        return None if data is None else _read(Manifest, data)

    def write_manifest(self, manifest: Manifest) -> None:
        self.write_json("manifest.json", manifest.to_dict())

    def write_json(self, name: str, data: dict[str, Any]) -> None:
        """Write a file of the run directory, whole or not at all."""
        lines = files.json_lines(data).encode()
        files.write_bytes(os.path.join(self.path, name), lines, files.OWN)
        if self.remote is not None:
            self.remote.keep(name, lines)

    def keep_files(self, *names: str) -> None:
        """Copy files and folders of the run directory, as they are now, into the bucket.

        Nothing where the output is a folder.
        """
        if self.remote is None:
            return
        for name in names:
            path = os.path.join(self.path, name)
            outputs = [(name, path)] if os.path.isfile(path) else []
            if os.path.isdir(path):
                outputs = [(f"{name}/{n}", os.path.join(path, n)) for n in sorted(os.listdir(path))]
            for key, file in outputs:
                self.remote.keep_file(key, file)

    def bring_files(self, *names: str) -> None:
        """Download the files that `keep_files` stored in the bucket and that are missing here."""
        for name in names if self.remote is not None else ():
            path = os.path.join(self.path, name)
            if self.remote is not None and not os.path.exists(path):
                self.remote.bring(name, path)

    def remove_json(self, name: str) -> None:
        files.remove(os.path.join(self.path, name))
        if self.remote is not None:
            self.remote.drop(name)

    def read_json(self, name: str) -> dict[str, Any] | None:
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                data = json.load(file)
        except (OSError, ValueError):
            return None
        return data if isinstance(data, dict) else None

    # -- the past -----------------------------------------------------------------------------------------------------
    def recover(self, plain_size: Callable[[int], int] = lambda _: -1, histograms: bool = True) -> Past:
        """Read the log, check that committed files exist, remove what was never committed.

        Adding up histograms takes four times as long as everything else: a run that continues does without until its
        end. One pass, little memory: the files of a run of 100,000 partitions are checked one by one and not collected.
        """
        self._finish_retracting()
        past = Past(self)
        differences: dict[str, str] = {}  # of committed files from what was committed
        contents: dict[str, int] = {}  # of files that may be replaced by others of another schema
        replaced: set[str] = set()
        for record in self.log.read(repair=True):
            if isinstance(record, CommitRecord):
                past.add(record, plain_size, histograms)
            else:
                replaced |= {self.own_name(name) for name in record.old}
                past.replace(record, contents)
            for file in (f for f in record.files if f.is_output):
                self.own_name(file.name)
                if file.schema is not None:
                    contents[file.name] = file.content_sum
                if difference := self._difference(file):
                    differences[file.name] = difference
        for name in replaced:
            differences.pop(name, None)
            files.remove(os.path.join(self.output, name))
        if self.remote is not None:
            self.remote.remove(replaced)
        if differences:
            raise RunConflict(
                f"{next(iter(differences.values()))}; restore it, or start over with fresh=True (--fresh)"
            )
        remove_orphans(self.staged, self.output, self.quarantine, self.files)
        return past

    def own_name(self, name: str) -> str:
        """Return a name from the log; raise RunConflict unless it is one in the output folder.

        The check is needed because files named in the log may be removed.
        """
        try:
            check_name(name)
        except RunConflict:
            raise RunConflict(
                f"{self.log.path} names {name!r}, which is no file of this output; start over with fresh=True (--fresh)"
            ) from None
        return name

    def tidy(self) -> None:
        """Remove what was staged and never committed.

        A run that ends early leaves none of it on a disk that may be full.
        """
        with contextlib.suppress(OSError, RunConflict):
            remove_orphans(self.staged, self.output, self.quarantine, self.files)

    def files(self) -> FileTable:
        """Return every committed file, from the log."""
        return FileTable.of(self.log.read())

    def _difference(self, file: CommittedFile) -> str:
        if self.remote is not None:
            return self.remote.difference(file)
        path = os.path.join(self.output, file.name)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return f"{path} was committed by this run and is gone"
        return "" if size == file.n_bytes else f"{path} was committed with {file.n_bytes} bytes and has {size}"

    # -- retracting a sampling step -----------------------------------------------------------------------------------
    def retract(self, step: int) -> None:
        """Retract a sampling step that cannot be finished, so that exactly a sample is delivered.

        Only while nothing commits.

        An empty file named after the step is written first (empty, for the disk may be full); then the step's files are
        removed, then its lines in the commit log, then the empty file. After a crash in between, the next `recover`
        does the rest.
        """
        os.close(files.open_to_append(os.path.join(self.path, f"retract-{step}")))
        files.sync_folder(self.path)
        self._finish_retracting()

    def _finish_retracting(self) -> None:
        for name in os.listdir(self.path):
            if (mark := _RETRACT_MARK.fullmatch(name)) is not None:
                self._remove_step(int(mark[1]))
                files.remove(os.path.join(self.path, name))

    def _remove_step(self, step: int) -> None:
        if self.remote is not None:
            self.remote.retract(step, [f.name for r in self._commits_of(step) for f in r.files if f.is_output])
        for record in self._commits_of(step):
            for file in record.files:
                if file.kind is not FileKind.LISTED:
                    folder = self.output if file.is_output else folder_of(file.kind, self.quarantine)
                    files.remove(os.path.join(folder, self.own_name(file.name)))
        self.log.rewrite(r for r in self.log.read() if not (isinstance(r, CommitRecord) and r.sampling_step == step))

    def _commits_of(self, step: int) -> Iterator[CommitRecord]:
        return (r for r in self.log.read() if isinstance(r, CommitRecord) and r.sampling_step == step)

    # -- removing everything ------------------------------------------------------------------------------------------

    def is_last_pass(self) -> bool:
        """Return True if a running deduplication or curation holds the output.

        In that case, what it keeps there is not a leftover of one that ended.
        """
        return files.is_held(os.path.join(self.path, "dedup.lock"))

    def is_half_forgotten(self) -> bool:
        """Return True if a process was killed while it removed the contents of this directory (`forget`)."""
        return os.path.exists(os.path.join(self.path, _FORGETTING))

    def is_abandoned(self) -> bool:
        """Return True if the output was removed, and the run directory next to it was not."""
        is_used = self.has_commits() or any(os.path.exists(os.path.join(self.path, name)) for name in _DONE)
        return self.remote is None and is_used and not os.path.lexists(self.output)

    def begin_to_forget(self) -> None:
        """Mark the directory as being removed, by a file that is removed last (`is_half_forgotten`)."""
        os.close(files.open_to_append(os.path.join(self.path, _FORGETTING)))

    def forget(self, everything: bool = True) -> None:
        """Remove, for --fresh, what the log says Tamis wrote, and the run directory; nothing else.

        Not `everything`: of this run alone, and what a workflow keeps next to its last run stays.

        What says that all is done goes first, then the output; the log goes after everything that it names, the plan
        last of all.
        """
        self.begin_to_forget()
        for name in _DONE:
            self.remove_json(name)
        if everything:  # before the files that reference it are removed; also those of passes
            scratch_references.remove_referenced_below(self.path)
        else:
            scratch_references.remove_referenced_scratch(os.path.join(self.path, "scratch.json"))
        past_files: set[str] = set()
        with contextlib.suppress(RunConflict):
            for record in self.log.read():
                past_files |= {self.own_name(f.name) for f in record.files if f.is_output}
        remove_orphans(self.staged, self.output, self.quarantine, lambda: past_files)
        if self.remote is not None:
            self.remote.forget(past_files)
        self._remove_outputs(past_files)
        self._remove_entries(everything)
        self._make_folders()

    def _remove_outputs(self, names: Collection[str]) -> None:
        """Remove output files, and the folders of `partition_by` that are empty then; nothing that a link leads to."""
        output = os.path.realpath(self.output)
        folders = {"/".join(parts[:n]) for name in names for parts in [name.split("/")] for n in range(1, len(parts))}
        for name in names:
            path = os.path.join(output, name)
            if os.path.realpath(os.path.dirname(path)) == os.path.dirname(path) and os.path.isfile(path):
                os.unlink(path)
        for folder in sorted(folders, reverse=True):
            with contextlib.suppress(OSError):  # holds files of others
                os.rmdir(os.path.join(output, folder))

    def _remove_entries(self, everything: bool) -> None:
        """Remove what is in the run directory, in the order of `forget`.

        Locks stay, and the run directories of outputs in this one: what these runs wrote is still there.
        """
        for entry in sorted(os.listdir(self.path), key=_order_of_forgetting):
            full = os.path.join(self.path, entry)
            if entry in LOCKS or entry.endswith(RUN_SUFFIX) or (entry in _OF_WORKFLOWS and not everything):
                continue
            if os.path.isdir(full) and not os.path.islink(full):
                shutil.rmtree(full, ignore_errors=True)
            else:
                os.unlink(full)


def _read(kind: type[_T], data: dict[str, Any]) -> _T:
    """Read a file of the run directory; what is damaged in it has its default."""
    return read_fields(kind, data, [])


def _boot_id() -> str:
    """Return what names the time since the machine started; empty where the system does not report it."""
    return (meter.read_text("/proc/sys/kernel/random/boot_id") or "").strip()


def _order_of_forgetting(entry: str) -> int:
    """Return the sort key for removal: entries not in `_LAST` go first, then those of `_LAST` in order."""
    return _LAST.index(entry) + 1 if entry in _LAST else 0


def _open_bucket(url: str) -> BucketOutput:
    from tamis.engine.run.output.bucket_output import BucketOutput

    return BucketOutput(url)


def own_run_dir(path: str) -> None:
    """Make a run directory, or see that the one there is this user's alone and that nothing in it leads elsewhere."""
    files.own_folder(path, _ADVICE.format(path=path), 0o755)
    _check_links(path)
    if path.endswith(RUN_SUFFIX) and not is_run_dir(path) and (names := os.listdir(path)) and not _OWN_NAMES & {*names}:
        output = output_of_run_dir(path)
        raise RunConflict(
            f"{path} is where the run of {output} would keep its log, and it already holds {min(names)!r}; move that "
            f"away, give another output, or create {os.path.join(output, RUN_DIRECTORY)} to keep the log there"
        )
    if not is_run_dir(path):
        os.close(files.open_to_append(os.path.join(path, "lock")))  # marks it as one before anything else is in it


def make_output(path: str) -> None:
    """Make the folder of an output, if it does not exist."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as exc:
        raise RunConflict(f"cannot write to {path}: {exc.strerror or exc}") from exc


def check_run_dir(path: str) -> None:
    """Check a run directory like `own_run_dir`, for callers that only read it.

    Creates nothing, and accepts a directory that does not exist.
    """
    if files.check_own_folder(path, _ADVICE.format(path=path)):
        _check_links(path)


def _check_links(path: str) -> None:
    advice = _ADVICE.format(path=path)
    with os.scandir(path) as entries:
        link = next((e.name for e in entries if e.is_symlink()), None)
    if link is not None:
        raise RunConflict(f"{path}/{link} is a link, and Tamis makes none: it would write to another place; {advice}")


def remove_own_folder(path: str) -> None:
    """Remove a folder with all there is in it, if it is this user's alone; any other stays."""
    try:
        there = files.check_own_folder(path, "")
    except RunConflict:
        return
    if there:
        shutil.rmtree(path, ignore_errors=True)


_ADVICE = (
    "give another output. If it is yours and no one else wrote to it: chmod -R go-w {path}, then the same command again"
)


def new_run_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-") + uuid.uuid4().hex[:6]


def _with_data(folder: str) -> list[str]:
    """Return the names in a folder without those of empty folders, such as one that was made for later."""
    names = os.listdir(folder)
    paths = {name: os.path.join(folder, name) for name in names}
    return [n for n, path in paths.items() if os.path.islink(path) or not os.path.isdir(path) or os.listdir(path)]
