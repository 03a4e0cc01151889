"""The memory budget of a run, and the limits that this machine can enforce.

Covers finding the budget (option, environment, control group, free memory) and the facts that `tamis doctor` shows.
Files are read through a `Reading`, so tests can pretend any machine. Does not measure processes: see meter.py.
"""

from __future__ import annotations

import os
import posixpath
import resource
from collections.abc import Mapping
from typing import Any, NamedTuple

from tamis.errors import BudgetError
from tamis.memory import seccomp_gate
from tamis.memory.meter import Reading, read_text
from tamis.sizes import format_size, parse_size

CGROUP_PERCENT = 90  # the kernel also charges page cache and kernel memory to the group
AVAILABLE_PERCENT = 80
_LIMIT_FILES = {2: ("memory.max", "memory.high"), 1: ("memory.limit_in_bytes",)}
_OVERCOMMIT = {"0": "heuristic", "1": "always", "2": "never"}


class Budget(NamedTuple):
    """A number of bytes, where it came from (option, environment, cgroup, available), and one sentence for people."""

    bytes: int
    source: str
    why: str


class CgroupLimit(NamedTuple):
    path: str
    bytes: int


class Cgroup(NamedTuple):
    """The control group whose memory limits bind this process."""

    kind: str  # v1, v2, hybrid (both mounted) or none
    memory_version: int | None = None  # which hierarchy holds the memory controller
    path: str | None = None
    limits: tuple[CgroupLimit, ...] = ()


def find_budget(
    explicit: str | int | None = None, environ: Mapping[str, str] | None = None, read: Reading = read_text
) -> Budget:
    """Return the budget of a run: --memory, else TAMIS_MEMORY, else what the control group or machine offers."""
    environ = os.environ if environ is None else environ
    if explicit is not None:
        size = parse_size(explicit, "--memory")
        return Budget(size, "option", f"{format_size(size)}, as set for this run.")
    if environ.get("TAMIS_MEMORY", "").strip():
        size = parse_size(environ["TAMIS_MEMORY"].strip(), "TAMIS_MEMORY")
        return Budget(size, "environment", f"{format_size(size)}, as set in TAMIS_MEMORY.")

    meminfo = _meminfo(read)
    available = meminfo.get("MemAvailable")
    from_available = None if available is None else available * AVAILABLE_PERCENT // 100
    binding = min(find_cgroup(read).limits, key=lambda limit: limit.bytes, default=None)
    if binding is not None:
        size = binding.bytes * CGROUP_PERCENT // 100
        # A limit is a permission, not a promise: other groups may have taken the memory already.
        if from_available is None or size <= from_available:
            why = (
                f"{format_size(size)}: {CGROUP_PERCENT} % of the control group limit {format_size(binding.bytes)} in "
                f"{binding.path}."
            )
            return Budget(size, "cgroup", why)
    if available is None or from_available is None or from_available <= 0:
        raise BudgetError(
            "memory budget: expected MemAvailable in /proc/meminfo, got none; give the budget yourself, e.g. --memory "
            "4GB"
        )
    why = (
        f"{format_size(from_available)}: {AVAILABLE_PERCENT} % of the {format_size(available)} that are available on "
        "this machine now."
    )
    return Budget(from_available, "available", why)


def find_cgroup(read: Reading = read_text) -> Cgroup:
    """Return the control group of this process with every memory limit up to the root, except absurd ones."""
    paths = _own_paths(read)
    if not paths:
        return Cgroup("none")
    kind = "hybrid" if {1, 2} <= paths.keys() else "v2" if 2 in paths else "v1"
    mem_total = _meminfo(read).get("MemTotal", 1 << 60)
    mounts = _memory_mounts(read)
    # With both mounted, a memory controller bound to v1 is not available on v2.
    for version in (1, 2):
        if version not in mounts or paths.get(version) is None:
            continue
        root, mount_point = mounts[version]
        directory = _directory(str(paths[version]), root, mount_point)
        limits = _limits(read, directory, mount_point, version, mem_total)
        return Cgroup(kind, version, directory, tuple(limits))
    return Cgroup(kind)


def describe_limits(read: Reading = read_text) -> dict[str, Any]:
    """Return what this machine offers for enforcing a budget, as plain data for `tamis doctor`."""
    cgroup, meminfo = find_cgroup(read), _meminfo(read)
    seccomp_actions = (read("/proc/sys/kernel/seccomp/actions_avail") or "").split()
    has_gate = "user_notif" in seccomp_actions and not seccomp_gate.is_off(os.environ)
    overcommit = (read("/proc/sys/vm/overcommit_memory") or "").strip()
    return {
        "cgroup": cgroup.kind,
        "cgroup_memory_version": cgroup.memory_version,
        "cgroup_path": cgroup.path,
        "cgroup_limits": [{"path": limit.path, "bytes": limit.bytes} for limit in cgroup.limits],
        "rlimit_data_bytes": _rlimit(resource.RLIMIT_DATA),
        "rlimit_as_bytes": _rlimit(resource.RLIMIT_AS),
        "swap_total_bytes": meminfo.get("SwapTotal", 0),
        "swap_free_bytes": meminfo.get("SwapFree", 0),
        "mem_total_bytes": meminfo.get("MemTotal"),
        "mem_available_bytes": meminfo.get("MemAvailable"),
        "n_cores": len(os.sched_getaffinity(0)),
        "psi": read("/proc/pressure/memory") is not None,
        "overcommit": _OVERCOMMIT.get(overcommit, "unknown"),
        "enforcement": ["RLIMIT_DATA", *(["gate"] if has_gate else []), "watchdog"],
    }


def _rlimit(which: int) -> dict[str, int | None]:
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which))
    return {"soft": soft, "hard": hard}


def parse_meminfo(text: str) -> dict[str, int]:
    r"""Parse /proc/meminfo into bytes by field.

    >>> parse_meminfo("MemTotal: 16 kB\nHugePages_Total: 3")
    {'MemTotal': 16384, 'HugePages_Total': 3}
    """
    sizes = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        parts = value.split()
        if parts and parts[0].isdigit():
            sizes[key] = int(parts[0]) * (1024 if parts[1:] == ["kB"] else 1)
    return sizes


def _meminfo(read: Reading) -> dict[str, int]:
    return parse_meminfo(read("/proc/meminfo") or "")


def _own_paths(read: Reading) -> dict[int, str | None]:
    """Map each version to this process's path in the hierarchy that may limit memory.

    V1 without a memory controller gives None.
    """
    paths: dict[int, str | None] = {}
    for line in (read("/proc/self/cgroup") or "").splitlines():
        number, _, location = line.partition(":")
        controllers, _, path = location.partition(":")
        if number == "0" and not controllers:
            paths[2] = path
        elif "memory" in controllers.split(","):
            paths[1] = path
        else:
            paths.setdefault(1, None)
    return paths


def _memory_mounts(read: Reading) -> dict[int, tuple[str, str]]:
    """Map each version to (root of the mount inside the hierarchy, mount point)."""
    mounts: dict[int, tuple[str, str]] = {}
    for line in (read("/proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        mount_fields, kind = before.split(), after.split()
        if len(mount_fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            mounts.setdefault(2, (mount_fields[3], mount_fields[4]))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            mounts.setdefault(1, (mount_fields[3], mount_fields[4]))
    return mounts


def _directory(path: str, root: str, mount_point: str) -> str:
    """Return the directory in which `path` of the hierarchy is visible.

    In a container the mount may begin at the root of the container's hierarchy, or the path may be outside of
    it.
    """
    path, root = posixpath.normpath("/" + path.lstrip("/")), posixpath.normpath("/" + root.lstrip("/"))
    if root != "/":
        if path != root and not path.startswith(root + "/"):
            return mount_point
        path = path[len(root) :]
    return mount_point.rstrip("/") + (path if path != "/" else "")


def _limits(read: Reading, directory: str, mount_point: str, version: int, mem_total: int) -> list[CgroupLimit]:
    limits = []
    while True:
        for name in _LIMIT_FILES[version]:
            text = (read(f"{directory}/{name}") or "").strip()
            # "max", and numbers at or above the whole memory (v1 writes 2**63 - 4096 for none), limit nothing.
            if text.isdigit() and 0 < int(text) < mem_total:
                limits.append(CgroupLimit(f"{directory}/{name}", int(text)))
        if directory == mount_point or not directory.startswith(mount_point):
            return limits
        directory = posixpath.dirname(directory)
