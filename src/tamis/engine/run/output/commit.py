"""Commits: staged files become part of the output, whole and once.

Sync each staged file, link it to its final name (never replacing anything), sync the folder, append to the commit
log, only then unlink the staged name. A crash in between leaves a final file that is not in the log; resume recognises
it because its staged twin (same inode) is still there, and removes both. Files that Tamis did not write are never
touched.

A partition that was cut while it was worked on is committed as one: where its output files can follow each other in one
file (JSONL, also compressed), they become one.

Files between the passes of a workflow are not synced (`is_synced`): a run that the machine's restart may have
damaged starts over (`RunDir.may_have_lost_files`).

One thread does this, so that workers continue while the disk syncs. Commits that wait are taken together (one folder
sync and one log write for all of them).
"""

from __future__ import annotations

import itertools
import os
import queue
import shutil
import threading
from collections.abc import Callable, Container
from dataclasses import replace

from tamis import files
from tamis.engine.messages import StagedFile
from tamis.engine.run.output.bucket_output import BucketOutput
from tamis.engine.run.output.commit_log import CommitLog
from tamis.engine.run.output.names import (
    check_name,
    folder_of,
    in_order,
    name_of,
    numbered,
    replacement_names,
)
from tamis.engine.run.output.sample_store import SampleStore
from tamis.engine.samples import SampleLimits
from tamis.engine.schema import CommitOrReplace, CommitRecord, CommittedFile, FileKind, ReplaceRecord
from tamis.engine.supervisor.actions import CommitPartition, Committed, ReplaceFiles
from tamis.errors import TamisError
from tamis.formats import hive

_MAX_GROUP = 64
_COPY_BYTES = 1 << 20


class Committer:
    """`submit` commits from the supervisor's loop; `results` are read there too.

    `wake` is called when there are any.
    """

    def __init__(
        self,
        output: str,
        quarantine: str,
        log: CommitLog,
        wake: Callable[[], None],
        remote: BucketOutput | None = None,
        samples: SampleStore | None = None,
        is_synced: bool = True,
    ) -> None:
        """Create the committer. `remote`: the output, if it is in a bucket; `samples`: None if none are taken."""
        self.output, self.quarantine, self.log, self._wake, self._remote = output, quarantine, log, wake, remote
        self._samples, self._is_synced = samples, is_synced
        self._jobs: queue.SimpleQueue[CommitPartition | ReplaceFiles | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[Committed] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tamis-commit", daemon=True)
        self._thread.start()

    @property
    def sample_limits(self) -> SampleLimits | None:
        """The limits of the samples chosen so far; None if none are taken."""
        return None if self._samples is None else self._samples.limits

    def submit(self, action: CommitPartition | ReplaceFiles) -> None:
        self._jobs.put(action)

    def close(self) -> None:
        """Finish what was submitted.

        An interrupt is passed on when that is done, not before: the caller then removes files that are not in the
        log, and those that are being committed are not in it yet.
        """
        self._jobs.put(None)
        interrupted: KeyboardInterrupt | None = None
        while self._thread.is_alive():
            try:
                self._thread.join()
            except KeyboardInterrupt as exc:
                interrupted = exc
        self.log.close()
        if self._samples is not None:
            self._samples.close()
        if interrupted is not None:
            raise interrupted

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            group = [first]
            last = False
            while len(group) < _MAX_GROUP:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if job is None:
                    last = True
                    break
                group.append(job)
            self._commit(group)
            self._wake()
            if last:
                return

    def _commit(self, group: list[CommitPartition | ReplaceFiles]) -> None:
        try:
            group = [self._without_samples(job) for job in group]
            if self._remote is not None:
                self._remote.commit(group, self.quarantine, self.log)
            else:
                commit_group(group, self.output, self.quarantine, self.log, self._is_synced)
        except Exception as exc:  # whatever it is: without a result the run would wait forever
            reason = str(exc) if isinstance(exc, OSError | TamisError) else f"{type(exc).__name__}: {exc}"
            if isinstance(exc, OSError) and exc.strerror:
                reason = exc.strerror + (f" ({exc.filename})" if exc.filename else "")
            error = f"cannot commit to {self._remote.url if self._remote is not None else self.output}: {reason}"
            for job in group:
                self.results.put(Committed(job.partition, [], _bytes(job), error))
            return
        for job in group:
            covered = job.covered if isinstance(job, CommitPartition) else []
            self.results.put(Committed(job.partition, covered, _bytes(job)))

    def _without_samples(self, job: CommitPartition | ReplaceFiles) -> CommitPartition | ReplaceFiles:
        """Join the samples of a partition to those of the run, and return what is to be committed."""
        paths = [f.path for f in job.files if f.kind is FileKind.SAMPLES]
        if not paths:
            return job
        if self._samples is not None:
            self._samples.merge(paths)
        for path in paths:
            files.remove(path)
        return job._replace(files=[f for f in job.files if f.kind is not FileKind.SAMPLES])


def commit_group(
    group: list[CommitPartition | ReplaceFiles], output: str, quarantine: str, log: CommitLog, is_synced: bool = True
) -> None:
    records: list[CommitOrReplace] = []
    staged: list[str] = []
    replaced: list[str] = []
    folders: set[str] = set()
    for job in group:
        if isinstance(job, CommitPartition):
            committed = [
                _publish(f, name_of(job, f, i), output, quarantine, folders, is_synced)
                for f, i in numbered(_joined(in_order(job.files)))
            ]
            records.append(CommitRecord(job.sampling_step, job.covered, committed, job.ledger))
            staged += [f.path for f in job.files if f.kind is not FileKind.LISTED]
        else:
            names = [check_name(name) for name in replacement_names(job)]
            new = [
                _publish(f, name, output, quarantine, folders, is_synced)
                for f, name in zip(job.files, names, strict=True)
            ]
            records.append(ReplaceRecord(job.old, new, job.content))
            staged += [f.path for f in job.files]
            replaced += [os.path.join(output, check_name(name)) for name in job.old]
    for folder in folders if is_synced else ():
        files.sync_folder(folder)
    log.append(records, is_synced)
    for path in [*staged, *replaced]:
        files.remove(path)


def _publish(
    file: StagedFile, name: str, output: str, quarantine: str, folders: set[str], is_synced: bool
) -> CommittedFile:
    """Give a staged file its final name, once it is on disk if it is to be synced; return its entry in the log."""
    if file.kind is FileKind.LISTED:
        return file.committed(file.path)
    folder = output if file.kind is FileKind.OUTPUT else folder_of(file.kind, quarantine)
    *below, _ = name.split("/")
    for part in below:
        folders.add(folder)  # which has a new entry
        folder = os.path.join(folder, part)
        files.own_folder(folder, "remove it, or give another output", 0o755)
    files.publish(file.path, os.path.join(output if below else folder, name), is_synced)
    folders.add(folder)
    return file.committed(name)


def _joined(files: list[StagedFile]) -> list[StagedFile]:
    """Join outputs that can follow each other as one file.

    Staged files only: they are not visible yet, and a crash leaves nothing.
    """
    joined: list[StagedFile] = []
    for file in files:
        last = joined[-1] if joined else None
        if last is None or not (file.joins and last.joins and file.extension == last.extension):
            joined.append(file)
            continue
        _append(file.path, last.path)
        content = (int(last.content or "0", 16) + int(file.content or "0", 16)) % (1 << 128)
        n_bytes, data = (last.n_bytes or 0) + (file.n_bytes or 0), (last.data_bytes or 0) + (file.data_bytes or 0)
        rows = last.rows + file.rows
        joined[-1] = replace(last, rows=rows, n_bytes=n_bytes, content=f"{content:032x}", data_bytes=data)
    return joined


def _append(path: str, to: str) -> None:
    """Append the bytes of one file to another, without holding them in memory."""
    with open(path, "rb", buffering=0) as source, open(to, "ab", buffering=0) as target:
        shutil.copyfileobj(source, target, _COPY_BYTES)


def remove_orphans(staged: str, output: str, quarantine: str, committed: Callable[[], Container[str]]) -> int:
    """Remove what a crash left between linking and logging, and all staged files. Returns how many outputs went.

    `committed` returns the names of committed files; it is called only after a crash, as it reads the whole log.
    """
    n_removed = 0
    inodes = {(s.st_dev, s.st_ino) for e in _scan(staged) if (s := e.stat(follow_symlinks=False)).st_nlink > 1}
    others = [folder_of(kind, quarantine) for kind in FileKind if kind not in (FileKind.OUTPUT, FileKind.LISTED)]
    committed_names = committed() if inodes else ()
    outputs = hive.output_entries(output) if inodes else ()
    for name, entry in itertools.chain(outputs, ((e.name, e) for o in others if inodes for e in _scan(o))):
        if name not in committed_names and entry.is_file(follow_symlinks=False):
            info = entry.stat(follow_symlinks=False)
            if (info.st_dev, info.st_ino) in inodes:
                os.unlink(entry.path)
                n_removed += 1
    for entry in _scan(staged):
        files.remove(entry.path)
    return n_removed


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _bytes(job: CommitPartition | ReplaceFiles) -> int:
    return sum(f.n_bytes or 0 for f in job.files)
