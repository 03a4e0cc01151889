"""The machine around a run: its memory, the control group's limit and use, memory pressure (PSI), room on disks.

The parsers are pure; `MachineReader` finds the files once and reads them at each look (0.1 to 0.5 ms). What a kernel, a
container or a file system does not report is None, never an exception. See budget.py for what a limit means for the
budget of a run.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Sequence
from typing import NamedTuple

from tamis.memory.budget import find_cgroup, parse_meminfo
from tamis.memory.meter import Reading, read_text


class MachineSample(NamedTuple):
    """One look at the machine, named as the run database does.

    `psi_some`, `psi_full`: percent of the last 10 s in which some (or all) tasks waited for memory.
    """

    machine_used_bytes: int | None = None
    machine_total_bytes: int | None = None
    cgroup_used_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    psi_some: float | None = None
    psi_full: float | None = None


class StallShares(NamedTuple):
    some: float | None
    full: float | None


def parse_pressure(text: str) -> StallShares:
    r"""Return the avg10 figures of a PSI file.

    >>> parse_pressure("some avg10=1.50 avg60=0.00 total=3\nfull avg10=0.25 avg60=0.00 total=1")
    StallShares(some=1.5, full=0.25)
    """
    shares: dict[str, float] = {}
    for line in text.splitlines():
        kind, *values = line.split() or [""]
        for value in values:
            name, _, number = value.partition("=")
            if name == "avg10":
                try:
                    shares[kind] = float(number)
                except ValueError:
                    continue
    return StallShares(shares.get("some"), shares.get("full"))


def parse_memory_stat(text: str) -> dict[str, int]:
    """Parse memory.stat of a control group, of either version, as names and numbers."""
    pairs = (line.split() for line in text.splitlines())
    return {p[0]: int(p[1]) for p in pairs if len(p) == 2 and p[1].isdigit()}


def used_by_group(usage: str, stat: dict[str, int]) -> int | None:
    """Return the bytes of a control group that the kernel cannot drop: its usage without inactive file pages."""
    if not usage.strip().isdigit():
        return None
    idle = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    return max(0, int(usage) - idle)


def age_s() -> float | None:
    """Return the seconds since this process was started; None if the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as stat, open("/proc/uptime", "rb") as uptime:
            started_s = int(stat.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
            return max(0.0, float(uptime.read().split()[0]) - started_s)
    except (OSError, ValueError, IndexError):
        return None


def folder_bytes(folders: Sequence[str], max_entries: int = 1000) -> int:
    """Sum the bytes of the files in and below these folders, over at most `max_entries` of them."""
    total, n, waiting = 0, 0, list(folders)
    while waiting and n < max_entries:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    n += 1
                    if n > max_entries:
                        break
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        continue
                    with contextlib.suppress(OSError):  # removed in between
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total


def filesystem(path: str | os.PathLike[str], mounts: str = "/proc/self/mounts") -> str:
    """Return the type of the file system that holds `path`; it matters because tmpfs is memory."""
    best, kind, absolute = "", "unknown", os.path.abspath(path)
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                _, mount, this_kind, *_ = line.split(" ")
                mount = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), mount)
                if len(mount) >= len(best) and f"{absolute}/".startswith(mount.rstrip("/") + "/"):
                    best, kind = mount, this_kind
    except (OSError, ValueError):
        return "unknown"
    return kind


def free_bytes(folders: Sequence[str]) -> int | None:
    """Return the free space on the fullest disk of these folders; None if unknown."""
    sizes = []
    for folder in folders:
        try:
            stat = os.statvfs(folder)
        except OSError:
            continue
        sizes.append(stat.f_bavail * stat.f_frsize)
    return min(sizes, default=None)


class MachineReader:
    def __init__(self, read: Reading = read_text) -> None:
        self._read = read
        group = find_cgroup(read)
        tightest = min(group.limits, key=lambda limit: limit.bytes, default=None)
        # Use is read where the limit is set: that may be an ancestor, whose other members count too.
        self._folder = group.path if tightest is None else posixpath.dirname(tightest.path)
        self._limit_path = None if tightest is None else tightest.path
        self._usage_name = "memory.usage_in_bytes" if group.memory_version == 1 else "memory.current"
        self._pressure_path = "/proc/pressure/memory"
        if self._limit_path is not None and self._read(f"{self._folder}/memory.pressure") is not None:
            self._pressure_path = f"{self._folder}/memory.pressure"

    def sample(self) -> MachineSample:
        memory = parse_meminfo(self._read("/proc/meminfo") or "")
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        pressure = parse_pressure(self._read(self._pressure_path) or "")
        used, limit = self._group()
        return MachineSample(
            None if total is None or available is None else max(0, total - available),
            total,
            used,
            limit,
            pressure.some,
            pressure.full,
        )

    def _group(self) -> tuple[int | None, int | None]:
        if self._folder is None:
            return None, None
        stat = parse_memory_stat(self._read(f"{self._folder}/memory.stat") or "")
        used = used_by_group(self._read(f"{self._folder}/{self._usage_name}") or "", stat)
        limit = (self._read(self._limit_path) or "").strip() if self._limit_path is not None else ""
        return used, int(limit) if limit.isdigit() else None
