"""Stages that keep memory of every partition, each in another way. Imported by worker processes too."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tamis import DocumentBatch
from tests.faults.fault_stages import TextStage

_KEPT: list[Any] = []  # of the module, as a cache without bound would be


@dataclass(repr=False)
class KeepBytes(TextStage):
    """Large Python objects, one per partition: malloc's, like native memory."""

    n_bytes: int = 64_000
    name: str = "keep_bytes"

    def setup(self, worker_metadata: Any = None) -> None:
        self._kept: list[bytes] = []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self._kept.append(b"\1" * self.n_bytes)
        return task


@dataclass(repr=False)
class KeepObjects(TextStage):
    """Many small Python objects, in a list of the module."""

    n_bytes: int = 64_000
    name: str = "keep_objects"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        _KEPT.append([{"n": 1000 + i} for i in range(self.n_bytes // 224)])  # a dict of one entry, an int, a slot
        return task


@dataclass(repr=False)
class KeepArrow(TextStage):
    n_bytes: int = 64_000
    name: str = "keep_arrow"

    def setup(self, worker_metadata: Any = None) -> None:
        self._kept: list[Any] = []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        made = pa.allocate_buffer(self.n_bytes)
        ctypes.memset(made.address, 1, self.n_bytes)
        self._kept.append(made)
        return task


@dataclass(repr=False)
class KeepNative(TextStage):
    """Memory from malloc that no Python object knows of."""

    n_bytes: int = 64_000
    name: str = "keep_native"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        malloc = ctypes.CDLL(None).malloc
        malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        ctypes.memset(malloc(self.n_bytes), 1, self.n_bytes)
        return task


@dataclass(repr=False)
class KeepMapped(TextStage):
    """Memory that neither malloc nor Python's allocator counts."""

    n_bytes: int = 64_000
    name: str = "keep_mapped"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        made = mmap.mmap(-1, self.n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        made.write(b"\1" * self.n_bytes)
        _KEPT.append(made)
        return task


@dataclass(repr=False)
class KeepShared(TextStage):
    """Memory that other processes could use too: no part of a process's private memory."""

    n_bytes: int = 64_000
    name: str = "keep_shared"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        made = mmap.mmap(-1, self.n_bytes)
        made.write(b"\1" * self.n_bytes)
        _KEPT.append(made)
        return task


@dataclass(repr=False)
class FillCache(TextStage):
    """A cache with a bound: takes `n_bytes` of every partition until it has `n_entries` of them."""

    n_bytes: int = 1_000_000
    n_entries: int = 40
    name: str = "fill_cache"

    def setup(self, worker_metadata: Any = None) -> None:
        self._kept: list[bytes] = []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if len(self._kept) < self.n_entries:
            self._kept.append(b"\1" * self.n_bytes)
        return task


@dataclass(repr=False)
class KeepOpen(TextStage):
    """Opens files in every partition and never closes them."""

    n_files: int = 10
    name: str = "keep_open"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        _KEPT.extend(open(os.devnull, "rb") for _ in range(self.n_files))  # noqa: SIM115
        return task


@dataclass(repr=False)
class KeepThreads(TextStage):
    """Starts threads in every partition that never end."""

    n_threads: int = 2
    name: str = "keep_threads"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for _ in range(self.n_threads):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        return task
