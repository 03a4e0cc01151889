"""Files in memory (tmpfs, memfd) held open but not mapped, which no process's own counts show."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from tamis.memory import meter

_KINDS = ("tmpfs", "ramfs")


def shared_total() -> int:
    """Return the bytes of all shared memory (tmpfs, memfd) on the machine, mapped or not.

    A quick way to see whether it changes.
    """
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("Shmem:"):
                return int(line.split()[1]) * 1024
    return 0


def parse_mounts(mountinfo: str) -> set[int]:
    r"""Parse the devices of file systems in memory.

    >>> table = "26 1 0:24 / /dev/shm rw - tmpfs tmpfs rw\n27 1 8:1 / / rw - ext4 /dev/sda1 rw"
    >>> sorted(parse_mounts(table)) == [os.makedev(0, 24)]
    True
    """
    devices = set()
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) > 2 and kind and kind[0] in _KINDS:
            major, _, minor = fields[2].partition(":")
            devices.add(os.makedev(int(major), int(minor)))
    return devices


def memory_devices() -> set[int]:
    return parse_mounts(meter.read_text("/proc/self/mountinfo") or "")


def bytes_by_file(pids: Iterable[int], devices: set[int], but_not_in: Sequence[str] = ()) -> dict[str, int]:
    """Return the in-memory files that these processes hold open without mapping them, with their bytes.

    Leaves out files in the folders `but_not_in`.
    """
    sizes: dict[tuple[int, int], tuple[str, int]] = {}
    mapped: set[int] = set()
    for pid in pids:
        mapped |= {mapping.inode for mapping in meter.mappings(pid) if mapping.is_shared}
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    path = os.readlink(f"/proc/{pid}/fd/{fd}")
                    status = os.stat(f"/proc/{pid}/fd/{fd}")
                    inside = any(path.startswith(folder.rstrip("/") + "/") for folder in but_not_in)
                    if not inside and (status.st_dev in devices or path.startswith("/memfd:")):
                        sizes[status.st_dev, status.st_ino] = path, status.st_blocks * 512
    return {path: n_bytes for (_, inode), (path, n_bytes) in sizes.items() if n_bytes and inode not in mapped}
