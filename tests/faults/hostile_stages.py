"""Stages that take memory in every way there is around a limit on a process's own pages.

`mb`: how much they want in all.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

MB = 1_000_000
_held_s = 0.6


@dataclass
class Hostile(ProcessingStage[DocumentBatch, DocumentBatch]):
    """`kind`: one of the functions below.

    `path`: a file to be mapped. `held_s`: long enough to be seen from outside.
    """

    kind: str = "shared_map"
    mb: int = 800
    path: str = ""
    held_s: float = 0.6
    name: str = "hostile"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        global _held_s
        _held_s = self.held_s
        globals()[self.kind](self.mb * MB, self.path)
        return batch


def fill(buffer: bytearray | mmap.mmap | memoryview, n_bytes: int) -> None:
    block = b"x" * min(MB, n_bytes)
    for i in range(0, n_bytes - len(block) + 1, len(block)):
        buffer[i : i + len(block)] = block


def hold(n_bytes: int) -> int:
    held = bytearray(n_bytes)
    fill(held, n_bytes)
    time.sleep(_held_s)
    return len(held)


def in_children(n: int, work: object, *arguments: object) -> None:
    """`work(*arguments)` in n forked children at once; whether all of them could is all that their parent learns."""
    children = []
    for _ in range(n):
        pid = os.fork()
        if pid == 0:
            try:
                work(*arguments)  # type: ignore[operator]
            except (MemoryError, OSError, RuntimeError):
                os._exit(1)
            os._exit(0)
        children.append(pid)
    failed = [pid for pid in children if os.waitpid(pid, 0)[1]]
    if failed:
        raise RuntimeError(f"{len(failed)} of {n} children failed")


# -- the kinds --------------------------------------------------------------------------------------------------------
def mapped_file(n_bytes: int, path: str) -> None:
    with open(path, "rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert sum(held[i] for i in range(0, len(held), 4096)) >= 0
    time.sleep(_held_s)


def shared_map(n_bytes: int, path: str) -> None:
    held = mmap.mmap(-1, n_bytes)
    fill(held, n_bytes)
    time.sleep(_held_s)


def shared_memory(n_bytes: int, path: str) -> None:
    from multiprocessing.shared_memory import SharedMemory

    held = SharedMemory(create=True, size=n_bytes)
    fill(held.buf, n_bytes)
    time.sleep(_held_s)
    held.close()
    held.unlink()


def many_small_maps(n_bytes: int, path: str) -> None:
    """Too small to be asked about one by one."""
    held = []
    for _ in range(n_bytes // MB):
        held.append(mmap.mmap(-1, MB - 4096))
        fill(held[-1], MB - 4096)
    time.sleep(_held_s)


def forks(n_bytes: int, path: str) -> None:
    in_children(8, hold, n_bytes // 8)


def pool(n_bytes: int, path: str) -> None:
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(8) as workers:
        workers.map(hold, [n_bytes // 8] * 8, chunksize=1)


def daemons(n_bytes: int, path: str) -> None:
    """They leave their parents, and would outlive the run."""

    def leave() -> None:
        os.setsid()
        if os.fork() == 0:
            with contextlib.suppress(MemoryError):
                hold(n_bytes // 4)
            time.sleep(60)
            os._exit(0)

    in_children(4, leave)
    time.sleep(_held_s)


def rewriting(n_bytes: int, path: str) -> None:
    """Children that write to what they have inherited: no limit on allocations sees that."""
    held = bytearray(n_bytes // 20)
    fill(held, len(held))

    def write() -> None:
        fill(held, len(held))
        time.sleep(_held_s)

    in_children(8, write)


def mapping_children(n_bytes: int, path: str) -> None:
    in_children(8, shared_map, n_bytes // 8, path)


def generations(n_bytes: int, path: str, depth: int = 5) -> None:
    def further() -> None:
        if depth:
            generations(n_bytes, path, depth - 1)

    in_children(1, further)
    in_children(2, hold, n_bytes // 10)


def programs(n_bytes: int, path: str) -> None:
    code = f"import time; held = bytearray({n_bytes // 8}); held[:] = b'x' * len(held); time.sleep({_held_s})"
    started = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) for _ in range(8)]
    failed = [process for process in started if process.wait()]
    if failed:
        raise RuntimeError("a program failed")


def unmapped_file(n_bytes: int, path: str) -> None:
    """Written and never mapped: memory that belongs to no process."""
    name = f"/dev/shm/hostile-{os.getpid()}"
    try:
        with open(name, "wb") as file:
            for _ in range(n_bytes // MB):
                file.write(b"x" * MB)
        time.sleep(_held_s)
    finally:
        os.unlink(name)


def nameless_file(n_bytes: int, path: str) -> None:
    held = os.memfd_create("hostile")
    for _ in range(n_bytes // MB):
        os.write(held, b"x" * MB)
    time.sleep(_held_s)
    os.close(held)


def lingering(n_bytes: int, path: str) -> None:
    """Leave a daemon and a file in shared memory, and wait, so that the run can be killed meanwhile.

    `path`: a folder, to tell of them.
    """
    name = f"/dev/shm/hostile-{os.getpid()}"
    file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    os.ftruncate(file, n_bytes)
    held = mmap.mmap(file, n_bytes)
    fill(held, n_bytes)
    os.close(file)

    def leave() -> None:
        os.setsid()
        if os.fork() == 0:
            with open(f"{path}/shared", "w", encoding="utf-8") as told:
                told.write(name)
            with open(f"{path}/daemon.new", "w", encoding="utf-8") as told:
                told.write(str(os.getpid()))
            os.rename(f"{path}/daemon.new", f"{path}/daemon")
            time.sleep(600)
            os._exit(0)

    in_children(1, leave)
    time.sleep(600)
