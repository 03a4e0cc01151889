"""Stages that take memory in every way there is around a limit on a process's own pages. `mb`: how much they want in all."""

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
HELD_S = 0.6  # long enough to be seen from outside


@dataclass
class Hostile(ProcessingStage[DocumentBatch, DocumentBatch]):
    """`kind`: one of the functions below. `path`: a file to be mapped."""

    kind: str = "shared_map"
    mb: int = 800
    path: str = ""
    name: str = "hostile"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        globals()[self.kind](self.mb * MB, self.path)
        return batch


def fill(buffer: bytearray | mmap.mmap | memoryview, n_bytes: int) -> None:
    block = b"x" * min(MB, n_bytes)
    for i in range(0, n_bytes - len(block) + 1, len(block)):
        buffer[i : i + len(block)] = block


def hold(n_bytes: int) -> int:
    held = bytearray(n_bytes)
    fill(held, n_bytes)
    time.sleep(HELD_S)
    return len(held)


def in_children(n: int, work: object, *arguments: object) -> None:
    """`work(*arguments)` in n forked children at once; what they raise is theirs."""
    children = []
    for _ in range(n):
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(MemoryError, OSError):
                work(*arguments)  # type: ignore[operator]
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


# -- the kinds ----------------------------------------------------------------------------------------------------------
def mapped_file(n_bytes: int, path: str) -> None:
    with open(path, "rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert sum(held[i] for i in range(0, len(held), 4096)) >= 0
    time.sleep(HELD_S)


def shared_map(n_bytes: int, path: str) -> None:
    held = mmap.mmap(-1, n_bytes)
    fill(held, n_bytes)
    time.sleep(HELD_S)


def shared_memory(n_bytes: int, path: str) -> None:
    from multiprocessing.shared_memory import SharedMemory

    held = SharedMemory(create=True, size=n_bytes)
    fill(held.buf, n_bytes)
    time.sleep(HELD_S)
    held.close()
    held.unlink()


def many_small_maps(n_bytes: int, path: str) -> None:
    """Too small to be asked about one by one."""
    held = []
    for _ in range(n_bytes // MB):
        held.append(mmap.mmap(-1, MB - 4096))
        fill(held[-1], MB - 4096)
    time.sleep(HELD_S)


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
    time.sleep(HELD_S)


def rewriting(n_bytes: int, path: str) -> None:
    """Children that write to what they have inherited: no limit on allocations sees that."""
    held = bytearray(n_bytes // 20)
    fill(held, len(held))

    def write() -> None:
        fill(held, len(held))
        time.sleep(HELD_S)

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
    code = f"import time; held = bytearray({n_bytes // 8}); held[:] = b'x' * len(held); time.sleep({HELD_S})"
    started = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) for _ in range(8)]
    for process in started:
        process.wait()


def unmapped_file(n_bytes: int, path: str) -> None:
    """Written and never mapped: memory that belongs to no process."""
    name = f"/dev/shm/hostile-{os.getpid()}"
    try:
        with open(name, "wb") as file:
            for _ in range(n_bytes // MB):
                file.write(b"x" * MB)
        time.sleep(HELD_S)
    finally:
        os.unlink(name)


def nameless_file(n_bytes: int, path: str) -> None:
    held = os.memfd_create("hostile")
    for _ in range(n_bytes // MB):
        os.write(held, b"x" * MB)
    time.sleep(HELD_S)
    os.close(held)
