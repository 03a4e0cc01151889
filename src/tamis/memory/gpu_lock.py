"""Processes that share a GPU take turns on it, so that one computes while the others read, prepare and hand on.

Two processes that compute at once gain nothing: the device switches between them, and each takes twice as long
(measured: 1,087 documents/s where one alone did 1,151). In turn the device has always one to work for, as long as the
others are ready in time. A turn is a lock on a file in a folder of the run: it is free again when its holder dies.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from tamis import files


class GpuLock:
    """A lock on one device, shared by the workers of a run on this machine.

    `folder`: of the run; "" locks nothing. `device`: its name in CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, folder: str, device: str) -> None:
        name = re.sub(r"[^A-Za-z0-9-]", "_", f"{socket.gethostname()}-{device}")[:150]
        self._path = Path(folder) / f"gpu-{name}.lock" if folder else None

    @contextlib.contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait for the other processes, and hold the device until the block ends."""
        fd = -1
        if self._path is not None:
            try:
                fd = files.take_lock(self._path, wait=True)
            except OSError:  # a full or read-only disk, one without locks: without turns it is slower, and as right
                self._path = None
        try:
            yield
        finally:
            if fd >= 0:
                os.close(fd)
