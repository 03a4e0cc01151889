"""Files of scratch that nobody needs any more: removed behind the back of the run's loop, which has no time to wait for a disk.

A file system that is busy with gigabytes of output takes half a second over a file at times, and meanwhile no worker would be given anything to do.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading

from tamis.stores.scratch_files import Remover
from tamis.stores.urls import is_bucket


class Discarder:
    def __init__(self) -> None:
        self._far = Remover()
        self._paths: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, path: str) -> None:
        """What cannot be removed stays until the scratch of the run is removed as a whole."""
        if is_bucket(path):
            self._far.add(path)
            return
        self._paths.put(path)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tamis-discard", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Waits for files of this machine: whoever goes on with the run may use their names again."""
        self._far.close()
        if self._thread is not None:
            self._paths.put("")
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while path := self._paths.get():
            with contextlib.suppress(OSError):
                os.unlink(path)
