"""Files of scratch that nobody needs any more: removed behind the back of the run's loop, which has no time to wait for
a disk.

A file system that is busy with gigabytes of output takes half a second over a file at times, and meanwhile no worker
would be given anything to do.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable

from tamis.stores.scratch_files import remove_object
from tamis.stores.urls import is_bucket


class Discarder:
    def __init__(self) -> None:
        self._here, self._far = _Removal(os.unlink, "tamis-discard"), _Removal(remove_object, "tamis-remove")

    def add(self, path: str) -> None:
        """Queue a file for removal.

        What cannot be removed stays until the scratch of the run is removed as a whole.
        """
        (self._far if is_bucket(path) else self._here).add(path)

    def close(self) -> None:
        """Waits for files of this machine: whoever goes on with the run may use their names again.

        Nobody waits for a bucket.
        """
        self._far.close()
        self._here.close(wait=True)


class _Removal:
    """A thread, begun when it is first needed, that removes one thing after the other."""

    def __init__(self, remove: Callable[[str], object], name: str) -> None:
        self._remove, self._name = remove, name
        self._paths: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, path: str) -> None:
        self._paths.put(path)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    def close(self, wait: bool = False) -> None:
        """End the thread after it has removed everything queued."""
        if self._thread is not None:
            self._paths.put("")
            if wait:
                self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while path := self._paths.get():
            with contextlib.suppress(OSError):
                self._remove(path)
