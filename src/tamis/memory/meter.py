"""Memory and CPU of processes from /proc: the one module of this package that asks the operating system.

Covers resident, anonymous, proportional (PSS) and peak memory, process trees and the RLIMIT_DATA cap, by plain reads of
/proc. A process that is gone, or that we may not look at, gives None and never an exception; anything else (no
descriptors left, for example) is raised, because "cannot see" must not look like "uses nothing". Does not decide
anything: see predictor.py and pressure.py.

Measured cost of one read: statm 6 to 20 us, status 40 us, all descendants 70 us, smaps_rollup 10 ms per GB (it walks
the page tables and holds mmap_lock), so the sampler polls statm and asks for PSS only now and then.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
Pid = int | Literal["self"]
Reading = Callable[[str], str | None]
"""Gives the text of a file of the system; `read_text`, or in tests a machine that consists of some texts."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STATUS_KEYS = ("VmData", "VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem", "VmSwap", "Threads")


class Statm(NamedTuple):
    resident_bytes: int
    shared_bytes: int  # file-backed and shared-memory pages


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        chunks = []
        while chunk := os.read(fd, 65536):
            chunks.append(chunk)
        return b"".join(chunks)
    except (ProcessLookupError, PermissionError):  # it ended, or changed its user, between open and read
        return None
    finally:
        os.close(fd)


def read_text(path: str) -> str | None:
    """Return the text of a file of /proc or of a control group; None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return None


def statm(pid: Pid = "self") -> Statm | None:
    """Return resident and shared bytes: the cheapest sample. A zombie has (0, 0)."""
    raw = _read(f"/proc/{pid}/statm")
    if not raw:
        return None
    fields = raw.split()
    return Statm(int(fields[1]) * PAGE_BYTES, int(fields[2]) * PAGE_BYTES)


def rss_anon(pid: Pid = "self") -> int | None:
    """Return private anonymous bytes (heap, stacks), released only by ending or trimming this process."""
    pages = statm(pid)
    return None if pages is None else max(0, pages.resident_bytes - pages.shared_bytes)


def status(pid: Pid = "self") -> dict[str, int] | None:
    """Return VmData, VmHWM, VmRSS, RssAnon, RssFile, RssShmem and VmSwap in bytes, Threads as a count.

    0 where the kernel shows none.
    """
    raw = _read(f"/proc/{pid}/status")
    if not raw:
        return None
    values = dict.fromkeys(_STATUS_KEYS, 0)
    for line in raw.decode("ascii", "replace").splitlines():
        key, _, value = line.partition(":")
        if key in values:
            number, _, unit = value.strip().partition(" ")
            values[key] = int(number) * (1024 if unit.strip() == "kB" else 1)
    return values


def n_descriptors() -> int:
    """Return the number of open file descriptors of this process; 0 where /proc does not say.

    Needs none itself since Linux 6.2.
    """
    return _count_entries("/proc/self/fd", lambda seen: seen.st_size)


def n_threads() -> int:
    """Return the number of threads of this process; 0 where /proc does not say."""
    return _count_entries("/proc/self/task", lambda seen: seen.st_nlink - 2)


def max_descriptors() -> int:
    """Return how many file descriptors this process may have open: the soft RLIMIT_NOFILE."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _count_entries(path: str, from_stat: Callable[[os.stat_result], int]) -> int:
    try:
        n = from_stat(os.stat(path))
        return n if n > 0 else len(os.listdir(path))
    except OSError as exc:
        return max_descriptors() if exc.errno == errno.EMFILE else 0


def peak_rss(pid: Pid = "self") -> int | None:
    """Return the highest resident bytes since the process began or since reset_peak; exact, not sampled."""
    values = status(pid)
    return None if values is None else values["VmHWM"]


def reset_peak(pid: Pid = "self") -> bool:
    """Start a new peak measurement. False where the kernel or a container forbids it, or the process is gone.

    Code inside a worker uses release.PeakMeter instead, which lets several measurements share this one counter.
    """
    try:
        fd = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(fd, b"5") == 1
    except OSError:
        return False
    finally:
        os.close(fd)


def pss(pid: Pid = "self") -> int | None:
    """Return the proportional set size: shared pages divided among their users, so that sums are true.

    None if unreadable.
    """
    return _rolled_up(pid, b"Pss:")


def own_bytes(pid: Pid = "self") -> int | None:
    """Return private memory; pages that a fork has not written to count by their share.

    Unlike PSS it has no pages of files, of which other programs on the machine may take a share or not. None if
    unreadable.
    """
    anon_bytes = _rolled_up(pid, b"Pss_Anon:")
    return anon_bytes if anon_bytes is not None else rss_anon(pid)  # before Linux 5.9


def _rolled_up(pid: Pid, name: bytes) -> int | None:
    for line in (_read(f"/proc/{pid}/smaps_rollup") or b"").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None


def tree_pss(pids: Iterable[int]) -> int:
    """Sum of PSS over `pids`; those that are gone count 0, those whose PSS is hidden count their resident bytes."""
    total = 0
    for pid in set(pids):
        pss_bytes = pss(pid)
        if pss_bytes is None:
            pages = statm(pid)
            pss_bytes = 0 if pages is None else pages.resident_bytes
        total += pss_bytes
    return total


def descendants(pid: Pid = "self") -> dict[int, int]:
    """Return all living descendants, each with its parent; parents come before their children.

    A vanished process has none.
    """
    root = os.getpid() if pid == "self" else pid
    if _has_children_file():
        return _walk(root, _children_by_task)
    by_parent = _parents()
    return _walk(root, lambda parent: by_parent.get(parent, []))


@functools.cache
def _has_children_file() -> bool:
    """Return True if the kernel has CONFIG_PROC_CHILDREN; without it every process is asked for its parent."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _walk(root: int, children_of: Callable[[int], list[int]]) -> dict[int, int]:
    parents: dict[int, int] = {}
    queue = [root]
    while queue:
        parent = queue.pop(0)
        for child in children_of(parent):
            if child != root and child not in parents:
                parents[child] = parent
                queue.append(child)
    return parents


def _children_by_task(parent: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{parent}/task")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
    return [int(child) for task in tasks for child in (_read(f"/proc/{parent}/task/{task}/children") or b"").split()]


def _parents() -> dict[int, list[int]]:
    by_parent: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        fields = _stat_fields(int(name)) if name.isdigit() else None
        if fields is not None:
            by_parent.setdefault(int(fields[1]), []).append(int(name))
    return by_parent


def _stat_fields(pid: Pid) -> list[bytes] | None:
    """Return the fields of /proc/<pid>/stat from the state (field 3) to the CPU times (17) and on.

    The name before them may hold spaces and brackets.
    """
    fields = (_read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    return fields if len(fields) > 14 else None


def n_faults(pid: Pid = "self") -> int | None:
    """Return how often a process has touched a page that it did not have, or had to copy; None if it is gone.

    A process without new faults has not taken memory, and has not copied what it shares with others.
    """
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[7]) + int(fields[9])


def last_pid() -> int | None:
    """Return the number of the process (or thread) that was started last on this machine or in this container.

    None where it is not known.
    """
    if not _has_own_loadavg():
        return None
    fields = (_read("/proc/loadavg") or b"").split()
    return int(fields[4]) or None if len(fields) > 4 else None


@functools.cache
def _has_own_loadavg() -> bool:
    """Return False where a container shows a loadavg of its own making (LXCFS), which may be seconds old."""
    try:
        return os.stat("/proc/loadavg").st_dev == os.stat("/proc").st_dev
    except OSError:
        return False


def exists(pid: int) -> bool:
    """Return True if there is a process of this number, were it a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def parent(pid: Pid) -> int | None:
    """Return the pid of the process that started `pid`, or of the one that adopted it."""
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[1])


def cpu_s(pid: Pid = "self") -> tuple[float, float] | None:
    """Return CPU seconds of a process, and of its children that have ended and were waited for."""
    fields = _stat_fields(pid)
    if fields is None:
        return None
    user, system, waited_user, waited_system = (int(field) for field in fields[11:15])
    return (user + system) / _TICKS_PER_S, (waited_user + waited_system) / _TICKS_PER_S


def process_of(task: int) -> int | None:
    """Return the pid of the process that a task (thread) belongs to."""
    for line in (_read(f"/proc/{task}/status") or b"").splitlines():
        if line.startswith(b"Tgid:"):
            return int(line.split()[1])
    return None


def command_line(pid: Pid = "self") -> bytes | None:
    """Return the arguments that a program was started with, each terminated by a zero byte."""
    return _read(f"/proc/{pid}/cmdline")


def size_bytes(pid: Pid = "self") -> int | None:
    """Return the size of the address space, touched or not."""
    raw = _read(f"/proc/{pid}/statm")
    return int(raw.split()[0]) * PAGE_BYTES if raw else None


def data_bytes(pid: Pid = "self") -> int | None:
    """Return private writable bytes, touched or not: the quantity that RLIMIT_DATA limits."""
    values = status(pid)
    return None if values is None else values["VmData"]


class MemoryMapping(NamedTuple):
    """One line of /proc/<pid>/maps."""

    start: int
    n_bytes: int
    is_shared: bool
    device: bytes
    inode: int
    path: str


def mappings(pid: Pid = "self") -> list[MemoryMapping]:
    """Return the mappings of a process; an empty list for one that is gone."""
    entries = []
    for line in (_read(f"/proc/{pid}/maps") or b"").splitlines():
        span, rights, _, device, inode, *path = line.split(None, 5)
        start, _, end = span.partition(b"-")
        name = os.fsdecode(path[0]) if path else ""
        low = int(start, 16)
        entries.append(MemoryMapping(low, int(end, 16) - low, rights.endswith(b"s"), device, int(inode), name))
    return entries


def is_alive(pid: int) -> bool:
    """Return True if `pid` runs (a zombie does not)."""
    fields = _stat_fields(pid)
    return fields is not None and fields[0] not in (b"Z", b"X")


def environment(pid: Pid = "self") -> bytes | None:
    """Return the environment that a process (or the one it was forked from) was started with.

    Entries are NAME=value, each terminated by a zero byte.
    """
    return _read(f"/proc/{pid}/environ")


def data_limit() -> int | None:
    """Return the soft RLIMIT_DATA of this process; None means unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


def set_data_limit(pid: Pid, soft_bytes: int | None) -> int | None:
    """Cap the private memory of a running process; the soft limit in force afterwards, or None if it is gone.

    `soft_bytes` None lifts the cap as far as the hard limit allows. The hard limit stays as it is: a non-root user
    could never raise it again. PermissionError is raised: a cap that was not set must not look like one that was.
    """
    number = 0 if pid == "self" else pid
    infinite = resource.RLIM_INFINITY
    try:
        _, hard = resource.prlimit(number, resource.RLIMIT_DATA)
        limit = infinite if soft_bytes is None else soft_bytes
        if hard != infinite and (limit == infinite or limit > hard):
            limit = hard
        resource.prlimit(number, resource.RLIMIT_DATA, (limit, hard))
    except ProcessLookupError:
        return None
    return limit


class ProcessMeter(Protocol):
    """The questions about processes that counting asks (pss_sum.py): answered by this module, or by a fake in tests."""

    def statm(self, pid: Pid = "self") -> Statm | None: ...
    def peak_rss(self, pid: Pid = "self") -> int | None: ...
    def pss(self, pid: Pid = "self") -> int | None: ...
    def n_faults(self, pid: Pid = "self") -> int | None: ...
