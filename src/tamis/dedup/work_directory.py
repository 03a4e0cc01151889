"""The folder of files between the passes of a deduplication: in its run directory, in scratch, or in a bucket.

A folder in scratch has a name that cannot be guessed, which the run directory records in `work.json`. A call without
--scratch continues where the earlier one was; one with another --scratch starts over there. With scratch in a bucket,
the folder of the run directory holds the small files; keys, texts and tables are stored below such a name in the
bucket.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

from tamis import files
from tamis.dedup.state import State
from tamis.engine.run.output.directory import RunDir, remove_own_folder
from tamis.errors import RunConflict, StoreError
from tamis.stores import scratch_files
from tamis.stores.run_locations import register_local_dir
from tamis.stores.scratch_references import register, remove_referenced_below
from tamis.stores.urls import is_bucket, scratch_url

_OTHER_SCRATCH = "start over with fresh (--fresh), or give another --scratch"
_REMOVERS = 8
_NAME = re.compile(r"tamis-dedup-[0-9a-f]{16}")


class WorkDirectory:
    """The files between the passes of one deduplication.

    `open` it under the lock of the output, before anything else.
    """

    def __init__(self, run_dir: str, scratch: str | None = None) -> None:
        self._run_dir = run_dir
        self._pointer = os.path.join(run_dir, "work.json")
        self.scratch = scratch  # as the user gave it, or as an earlier call did
        self.path = self._own_path
        self.bucket_url = ""  # of what grows with the input, if scratch is in a bucket

    @property
    def _own_path(self) -> str:
        return os.path.join(self._run_dir, "dedup")

    @property
    def state(self) -> State:
        """The state that passes leave for each other here."""
        return State(self.path)

    def open(self) -> str:
        """Find the folder of an earlier call, or create one; return its path."""
        scratch = self.scratch
        if scratch is not None and "://" in scratch:
            scratch = scratch_url(scratch)
        self.bucket_url = self._recorded_url()
        if self.bucket_url and scratch is not None and os.path.dirname(self.bucket_url) != scratch:
            self.remove()
            if self.bucket_url:
                raise StoreError(
                    f"{self.bucket_url}: what an earlier call left there cannot be removed now; run the same command "
                    "again when the store answers, or start over with fresh (--fresh), which leaves it there"
                )
        if self.bucket_url and scratch is None:
            scratch = self.scratch = os.path.dirname(self.bucket_url)
        if scratch is not None and is_bucket(scratch):
            self._open_in_bucket(scratch)
        else:
            self._open_in_folder(scratch)
        files.own_folder(self.path, _OTHER_SCRATCH)
        return self.path

    def _open_in_folder(self, scratch: str | None) -> None:
        recorded = self._recorded_path()
        if recorded is not None and scratch is not None and os.path.dirname(recorded) != os.path.abspath(scratch):
            self.remove()
            recorded = None
        if recorded is not None:
            self.path = recorded
        elif scratch is not None:
            files.check_scratch_parent(scratch)
            self.path = files.unguessable(scratch, "tamis-dedup-")
            register(self._pointer, self.path)

    def _open_in_bucket(self, scratch: str) -> None:
        self.path = self._own_path
        if self.bucket_url:
            return
        self.remove()
        self.bucket_url = scratch_files.new_scratch_url(scratch, "tamis-dedup-")
        files.write_json(self._pointer, {"far": self.bucket_url})  # first: what no file names would stay forever
        try:
            scratch_files.check_writable(self.bucket_url)
        except StoreError:  # a call that could do nothing claims nothing: the next may name another location, or none
            files.remove(self._pointer)
            raise

    def locate(self) -> None:
        """Find the folder of an earlier call without creating or changing anything."""
        self.path, self.bucket_url = self._recorded_path() or self.path, self._recorded_url()

    def _recorded_url(self) -> str:
        """Return the bucket location that an earlier call recorded; empty if there is none."""
        url = (files.read_json(self._pointer) or {}).get("far", "")
        return url if is_bucket(url) and _NAME.fullmatch(os.path.basename(url)) else ""

    def _recorded_path(self) -> str | None:
        """Return the scratch folder that an earlier call recorded, or None.

        Raise RunConflict if others can write to it.
        """
        path = (files.read_json(self._pointer) or {}).get("path", "")
        if not isinstance(path, str) or not _NAME.fullmatch(os.path.basename(path)):
            return None
        return path if files.check_own_folder(path, _OTHER_SCRATCH) else None

    def remove(self) -> None:
        """Remove all files between passes, large ones several at a time: each waits for what the disk still writes."""
        with contextlib.suppress(RunConflict):
            if files.check_own_folder(self.path, ""):
                with ThreadPoolExecutor(_REMOVERS, "tamis-remove") as pool:
                    pool.map(files.remove, glob.glob(f"{glob.escape(self.path)}/*/*.arrow"))
        remove_referenced_below(self._run_dir)
        remove_own_folder(self._own_path)
        self.bucket_url = self._recorded_url()  # where the store refused: the next call removes it

    def has_commits(self) -> bool:
        """Return True if a pass has committed anything here."""
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            return any(RunDir(entry.path).has_commits() for entry in entries)
        return False

    # -- files ---------------------------------------------------------------------------------------------------------
    def pass_output(self, name: str) -> str:
        """Return the location of the files of a pass; its run directory is always in the local folder."""
        if not self.bucket_url:
            return os.path.join(self.path, name)
        url = f"{self.bucket_url}/{name}"
        register_local_dir(url, os.path.join(self.path, name))
        return url

    def table(self, name: str) -> str:
        """Return the location of a decision table for the passes that read it."""
        return os.path.join(self.bucket_url or self.path, name)

    def drop(self, name: str) -> None:
        """Delete a folder of a pass or of a decision, or a file."""
        path = os.path.join(self.path, name)
        remove_referenced_below(path)  # scratch of a pass that was killed
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else files.remove(path)
        if self.bucket_url:
            scratch_files.remove_tree(f"{self.bucket_url}/{name}")

    def size_bytes(self) -> int:
        """Return the size of everything here, in the folder and in the bucket."""
        total = 0
        for folder, _, names in os.walk(self.path):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.path.getsize(os.path.join(folder, name))
        return total + (scratch_files.bytes_below(self.bucket_url) if self.bucket_url else 0)
