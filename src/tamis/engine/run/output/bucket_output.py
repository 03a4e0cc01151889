"""An output in a bucket: `<url>/part-...` are its files, `<url>/_tamis/` is what going on needs.

_tamis/plan.json, steps.json, manifest.json, ...         as in a local run directory
_tamis/log/00000000000000000007                          one object per group of commits, written only where none is
                                                         (If-None-Match)
_tamis/quarantine/, verdicts/, scores/, rejected/        as in a local run directory

A commit is: workers have sent the parts of their files (not visible yet); the log object is written; the uploads that
it names are completed. A crash before the log object leaves uploads that are aborted later; a crash after it leaves
uploads that the next run completes. Two runs cannot both write log object 7: the one that comes second ends. An answer
that was lost is read back. The local run directory has a copy of the log, so that everything that observes a run reads
it as it reads any other.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence

from tamis import files
from tamis.engine.messages import StagedFile
from tamis.engine.run.output.bucket_log import N_REQUESTS, SpooledLog
from tamis.engine.run.output.commit_log import CommitLog, line_of
from tamis.engine.run.output.names import (
    check_name,
    folder_of,
    in_order,
    name_of,
    numbered,
)
from tamis.engine.schema import (
    CommitOrReplace,
    CommitRecord,
    CommittedFile,
    FileKind,
    LogRecord,
    ReplaceRecord,
    RetractRecord,
    WriterRecord,
)
from tamis.engine.supervisor.actions import CommitPartition, ReplaceFiles
from tamis.errors import RunConflict, StoreError
from tamis.formats.hive import is_partitioned
from tamis.stores.run_locations import RUN_DIRECTORY
from tamis.stores.s3 import Bucket, NameTaken, check_conditions
from tamis.stores.uploads import Upload, put_file, send
from tamis.stores.urls import output_url, split_s3

_TRUTH = ("plan.json", "steps.json", "manifest.json")  # what is not in the bucket is not so
UPLOADED_FILES = (
    "plan.json",
    "steps.json",
    "manifest.json",
    "run.json",
    "settings.json",
    "prediction.json",
    "dedup.json",
    "curation.json",
    "command.json",
)
OLD_UPLOAD_S = 3600.0  # one that a killed run left; younger ones may be another run's at this moment
_SEQUENCE = re.compile(r"[0-9]{20}")


class BucketOutput:
    """The bucket's side of one run directory. `open` first; then commits; `close` at the end."""

    def __init__(self, url: str) -> None:
        self.url = output_url(url)
        name, self.prefix = split_s3(self.url)
        self.bucket = Bucket(name)
        self.sizes: dict[str, int] = {}  # of objects in the output itself, by name
        self._control_objects: set[str] = set()  # names of objects in _tamis/
        self._logged: set[str] = set()  # ids of uploads that the log names
        self._next = 0
        self._is_open = self._lost = False
        # Whether this session has written to the log, or removed it: no other run's uploads are in progress here then.
        self._is_writer = False

    # -- looking ------------------------------------------------------------------------------------------------------
    def list_objects(self) -> None:
        """See what is there: one listing."""
        self.sizes, self._control_objects = {}, set()
        for listed in self.bucket.objects(f"{self.prefix}/"):
            name = listed.key[len(self.prefix) + 1 :]
            if name.startswith(f"{RUN_DIRECTORY}/"):
                self._control_objects.add(name[len(RUN_DIRECTORY) + 1 :])
            elif name:
                self.sizes[name] = listed.size

    @property
    def has_run(self) -> bool:
        return "plan.json" in self._control_objects

    def open(self, folder: str, log: CommitLog) -> None:
        """Make the local run directory `folder` what the bucket says, and finish what a killed run left half done."""
        check_conditions(self.bucket, f"{self.prefix}/{RUN_DIRECTORY}/")
        self.list_objects()
        for name in UPLOADED_FILES:
            path = os.path.join(folder, name)
            data = self.bucket.get(self._key(f"{RUN_DIRECTORY}/{name}")) if name in self._control_objects else None
            if data is not None:
                files.write_bytes(path, data, files.OWN)
            elif name in _TRUTH:
                files.remove(path)
        pending = list(self._uploads())  # before the log is read: what it names is in it then
        try:
            with SpooledLog(self.bucket, self._log_keys(), folder) as spooled:
                self._resume_uploads(spooled)
                self._complete_logged(spooled.valid(), {upload for _, upload, _ in pending})
                log.rewrite(spooled.valid())
                self._download_all(spooled.valid(), folder)
        except (KeyError, TypeError, ValueError) as exc:
            raise RunConflict(
                f"{self.url}/{RUN_DIRECTORY}/log is damaged, or not Tamis's ({exc}); "
                "start over with fresh=True (--fresh)"
            ) from None
        self._abort(u for u in pending if time.time() - u[2] > OLD_UPLOAD_S)
        self._is_open = True

    def _log_keys(self) -> list[str]:
        """Return the keys of the log objects in order; raise RunConflict if one is missing."""
        names = sorted(n[4:] for n in self._control_objects if n.startswith("log/") and _SEQUENCE.fullmatch(n[4:]))
        if [int(n) for n in names] != list(range(len(names))):
            raise RunConflict(
                f"{self.url}/{RUN_DIRECTORY}/log has gaps: the run cannot be resumed; "
                "start over with fresh=True (--fresh)"
            )
        self._next = len(names)
        return [self._key(f"{RUN_DIRECTORY}/log/{n}") for n in names]

    def _resume_uploads(self, spooled: SpooledLog) -> None:
        """Collect the uploads that the log names, and remove files of retracted sampling steps that still exist."""
        retracted = {f.name for r in spooled.retracted() for f in r.files if f.is_output}
        self._logged = set()
        for file in (f for record in spooled.valid() for f in record.files):
            if file.upload is not None:
                self._logged.add(_upload_of(file).id)
            retracted.discard(file.name)
        self.remove(retracted)

    def _complete_logged(self, records: Iterable[CommitOrReplace], pending: set[str]) -> None:
        """Complete what a killed run logged and did not complete.

        Files that are neither complete nor pending are reported later.
        """
        missing: dict[tuple[FileKind, str], CommittedFile] = {}
        for file in (f for record in records for f in record.files if f.upload is not None):
            name = check_name(file.name)
            is_complete = name in self.sizes if file.is_output else f"{file.kind}/{name}" in self._control_objects
            if _upload_of(file).id in pending and not is_complete:
                missing[(file.kind, name)] = file
            else:
                missing.pop((file.kind, name), None)  # a later record of the same file counts
        self._complete(list(missing.values()))

    def _download_all(self, records: Iterable[CommitOrReplace], folder: str) -> None:
        """Download quarantine, verdicts and the like that this machine does not have."""
        for file in (f for record in records for f in record.files if f.kind not in (FileKind.OUTPUT, FileKind.LISTED)):
            path = os.path.join(folder, file.kind, check_name(file.name))
            if not os.path.exists(path) and (stored := self.bucket.head(self._key_of(file))) is not None:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                self.bucket.fetch(stored, path)

    # -- keeping ------------------------------------------------------------------------------------------------------
    def keep(self, name: str, data: bytes) -> None:
        """Store a file of the run directory if resuming the run, or observing it elsewhere, needs it."""
        if name not in UPLOADED_FILES:
            return
        self.bucket.put(self._key(f"{RUN_DIRECTORY}/{name}"), data)
        self._control_objects.add(name)

    def keep_file(self, name: str, path: str) -> None:
        """Store a file of the run directory like `keep`, for a file of any size.

        `name`: below _tamis/.
        """
        put_file(self.bucket, self._key(f"{RUN_DIRECTORY}/{name}"), path)
        self._control_objects.add(name)

    def bring(self, name: str, path: str) -> None:
        """Download a file that `keep` stored, if there is one."""
        data = self.bucket.get(self._key(f"{RUN_DIRECTORY}/{name}"))
        if data is not None:
            files.write_bytes(path, data, files.OWN)

    def drop(self, name: str) -> None:
        if self._is_open and name in self._control_objects:
            self.bucket.delete(self._key(f"{RUN_DIRECTORY}/{name}"))
            self._control_objects.discard(name)

    def difference(self, file: CommittedFile) -> str:
        """Explain why a file differs from what was committed; return an empty string if it does not."""
        size = self.sizes.get(file.name)
        if size is None:
            return f"{self.url}/{file.name} was committed by this run and is gone"
        if size == file.n_bytes:
            return ""
        return f"{self.url}/{file.name} was committed with {file.n_bytes} bytes and has {size}"

    def remove(self, names: Iterable[str]) -> None:
        """Remove output files that were replaced or taken back."""
        for name in names:
            if self.sizes.pop(check_name(name), None) is not None:
                self.bucket.delete(self._key(name))

    # -- committing ---------------------------------------------------------------------------------------------------
    def commit(self, group: Sequence[CommitPartition | ReplaceFiles], quarantine: str, log: CommitLog) -> None:
        """Commit a group to the bucket, like commit.commit_group.

        Raise StoreError if the store does not answer, or if another run committed first.
        """
        records: list[CommitOrReplace] = []
        staged: list[str] = []
        local: list[tuple[str, str]] = []
        old: list[str] = []
        for job in group:
            if isinstance(job, ReplaceFiles):
                records.append(ReplaceRecord(job.old, [self._sent(file, file.name) for file in job.files], job.content))
                old += job.old
                continue
            committed = []
            for file, i in numbered(in_order(job.files)):
                if file.kind is FileKind.LISTED:
                    committed.append(file.committed(file.path))
                    continue
                name = file.name if file.upload is not None else name_of(job, file, i)
                committed.append(self._sent(file, name))
                staged.append(file.path)
                if file.kind is not FileKind.OUTPUT:
                    local.append((file.path, os.path.join(folder_of(file.kind, quarantine), name)))
            records.append(CommitRecord(job.sampling_step, job.covered, committed, job.ledger))
        self._check_new([f for r in records for f in r.files])  # before the log lists them as this run's
        self._log(records)
        self._complete([f for r in records for f in r.files if f.upload is not None])
        for path, final in local:
            with contextlib.suppress(FileExistsError):
                files.publish(path, final)
        log.append(records)
        self.remove(old)
        for path in staged:
            files.remove(path)

    def _check_new(self, committed: Sequence[CommittedFile]) -> None:
        """Raise StoreError if the bucket has an output file of one of these names already."""
        for file in committed:
            if file.is_output and file.name in self.sizes:
                raise StoreError(f"{self.url}/{file.name} exists already, and this run did not write it; move it away")

    def _sent(self, file: StagedFile, name: str) -> CommittedFile:
        """Return the log entry of a file, and upload the file now if its worker did not."""
        committed = file.committed(check_name(name))
        if file.upload is not None:
            return committed
        upload = send(self.bucket, self._key_of(committed), file.path)
        return committed._replace(upload=(upload.id, upload.mark, upload.parts))

    def _log(self, records: Sequence[LogRecord]) -> None:
        key = self._key(f"{RUN_DIRECTORY}/log/{self._next:020d}")
        data = b"".join(line_of(r) for r in [WriterRecord(os.urandom(12).hex()), *records])
        try:
            self.bucket.put_new(key, data)
        except NameTaken:
            self._lost = True
            raise StoreError(
                f"another run commits to {self.url}, too; this one ends, and what it had not committed is done by the "
                "other"
            ) from None
        self._next, self._is_writer = self._next + 1, True
        files_of_records = [f for r in records if isinstance(r, CommitOrReplace) for f in r.files]
        self._logged |= {_upload_of(f).id for f in files_of_records if f.upload is not None}

    def _complete(self, sent: Sequence[CommittedFile]) -> None:
        def one(file: CommittedFile) -> None:
            upload = _upload_of(file)
            try:
                self.bucket.complete(self._key_of(file), upload.id, upload.parts, upload.mark)
            except NameTaken as exc:
                raise StoreError(
                    f"{exc} is there already, and Tamis did not write it; move it away, then run the same command "
                    "again to resume"
                ) from None

        if len(sent) == 1:
            one(sent[0])
        elif sent:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(N_REQUESTS) as pool:
                list(pool.map(one, sent))
        for file in sent:
            if file.is_output:
                self.sizes[file.name] = file.n_bytes or 0
            else:
                self._control_objects.add(f"{file.kind}/{file.name}")

    def take(self, other: BucketOutput, name: str) -> None:
        """Copy an output file of another run in the same store, by the store's own copy operation.

        Does nothing if the file was already copied.
        """
        source = f"{other.prefix}/{name}"
        try:
            if name not in self.sizes:
                self.bucket.copy(other.bucket.name, source, self._key(name), other.sizes[name])
                self.sizes[name] = other.sizes[name]
                return
            there, meant = self.bucket.head(self._key(name)), other.bucket.head(source)
            if there is None or meant is None or (there.size, there.mark) != (meant.size, meant.mark):
                raise NameTaken(name)
        except NameTaken:
            raise RunConflict(
                f"{self.url}/{name} is there already, and no shard wrote it; move it away, then the same command goes "
                "on"
            ) from None

    def give(self, name: str, path: str) -> None:
        """Upload an output file of a run on this machine.

        The log that names the file is adopted afterwards.
        """
        put_file(self.bucket, self._key(name), path)
        self.sizes[name] = os.path.getsize(path)

    def adopt(self, records: Sequence[CommitOrReplace]) -> None:
        """Make these the beginning of the log, in one write. Their files are there."""
        self._log(records)

    def retract(self, sampling_step: int, names: Iterable[str]) -> None:
        """Take a sampling step back: first in the log, then its files."""
        self._log([RetractRecord(sampling_step)])
        self.remove(names)

    # -- the end ------------------------------------------------------------------------------------------------------
    def forget(self, names: Iterable[str]) -> None:
        """Remove, for --fresh, what the log says that Tamis wrote, and everything in _tamis/; nothing else."""
        pending = list(self._uploads())
        self.remove([n for n in names if n in self.sizes])
        order: Callable[[str], tuple[bool, str]] = lambda n: (n.startswith("log/"), n)  # noqa: E731
        for name in sorted(
            self._control_objects, key=order
        ):  # the log last: as long as it is there, it says what is Tamis's
            self.bucket.delete(self._key(f"{RUN_DIRECTORY}/{name}"))
        self._control_objects.clear()
        self._abort(pending)
        self._next, self._logged, self._is_writer = 0, set(), True

    def close(self) -> None:
        """Abort uploads that no commit names: of attempts that failed or were killed. All workers are gone by now.

        Only if this session has committed: one that was refused, or interrupted before, does not know whether another
        machine is at work here. What it leaves is aborted by a later run, when it is old.
        """
        if self._is_open and self._is_writer and not self._lost:
            with contextlib.suppress(OSError):  # the next run does it
                self._abort(list(self._uploads()))
        self._is_open = False

    def _uploads(self) -> Iterable[tuple[str, str, float]]:
        """Yield the unfinished uploads of this output alone: another output may be stored in a folder below."""
        for upload in self.bucket.uploads(f"{self.prefix}/"):
            name = upload[0][len(self.prefix) + 1 :]
            if name.startswith((f"{RUN_DIRECTORY}/", "part-")) or is_partitioned(name):
                yield upload

    def _abort(self, uploads: Iterable[tuple[str, str, float]]) -> None:
        for key, upload, _ in uploads:
            if upload not in self._logged:
                self.bucket.abort(key, upload)

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}"

    def _key_of(self, file: CommittedFile) -> str:
        name = check_name(file.name)
        return self._key(name if file.is_output else f"{RUN_DIRECTORY}/{file.kind}/{name}")


def _upload_of(file: CommittedFile) -> Upload:
    """Return the upload of a file that has one; raise ValueError if the log does not say it right."""
    if file.upload is None:
        raise ValueError("a file without an upload")
    return Upload.from_list(file.upload)
