"""Memory outside of processes: files in memory (tmpfs, memfd) and System V segments, counted and cleaned up.

`bytes_by_file` counts files that are held open but not mapped, which no process's own counts show. What ended processes
leave in /dev/shm takes memory until removed: removed is only what the processes of a worker had mapped, that was not
there when the run began, that is ours, and that no other process has open.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Collection, Iterable, Sequence

from tamis.memory import meter

SHARED_FOLDER = "/dev/shm"
_SYSV_TABLE = "/proc/sysvipc/shm"
_IPC_RMID = 0

Identity = tuple[int, int]  # device and inode


def present(folder: str = SHARED_FOLDER) -> set[Identity]:
    """Return the identities (device and inode) of the files that are in `folder` now."""
    paths = set()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                paths.add((status.st_dev, status.st_ino))
    return paths


def mapped_by(pids: Iterable[int], folder: str = SHARED_FOLDER) -> set[str]:
    """Return the files of the folder itself (segments have no folders below it) that these processes have mapped."""
    paths: set[str] = set()
    for pid in pids:
        for path in _mapped_paths(pid):
            if os.path.dirname(path) == folder:
                paths.add(path)
    return paths


def remove_files(paths: Collection[str], before: Collection[Identity]) -> list[str]:
    """Remove those that are left over; `before`: files that were there already. Returns what was removed."""
    ours = [path for path in paths if _is_ours(path, before)]
    if not ours:
        return []
    used = _in_use(set(ours))
    removed = []
    for path in ours:
        if path not in used:
            with contextlib.suppress(OSError):
                os.unlink(path)
                removed.append(path)
    return removed


def remove_segments(pids: Collection[int]) -> int:
    """Remove the System V segments that these processes made and that have no process attached. Returns how many."""
    n = 0
    for segment in parse_segments(meter.read_text(_SYSV_TABLE) or "", pids):
        n += ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None) == 0
    return n


def parse_segments(table: str, makers: Collection[int]) -> list[int]:
    r"""Parse the segments without an attached process, created by one of these processes.

    >>> table = "key shmid perms size cpid lpid nattch uid\n 0 7 600 4096 12 12 0 0\n 0 8 600 4096 12 12 1 0\n"
    >>> parse_segments(table, [12])
    [7]
    """
    lines = [line.split() for line in table.splitlines()]
    if not lines:
        return []
    at = {name: i for i, name in enumerate(lines[0])}
    return [
        int(row[at["shmid"]])
        for row in lines[1:]
        if len(row) >= len(at) and int(row[at["cpid"]]) in makers and row[at["nattch"]] == "0"
    ]


def _is_ours(path: str, before: Collection[Identity]) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (
        stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and (status.st_dev, status.st_ino) not in before
    )


def _in_use(paths: set[str]) -> set[str]:
    """Return the paths that a living process has mapped or open."""
    used: set[str] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            used |= paths & _mapped_paths(int(name))
            with contextlib.suppress(OSError):
                for fd in os.listdir(f"/proc/{name}/fd"):
                    with contextlib.suppress(OSError):
                        used |= paths & {os.readlink(f"/proc/{name}/fd/{fd}")}
    return used


def _mapped_paths(pid: int) -> set[str]:
    """Return the files with shared mappings of this process."""
    return {mapping.path for mapping in meter.mappings(pid) if mapping.is_shared}


# -- files in memory ---------------------------------------------------------------------------------------------------
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
