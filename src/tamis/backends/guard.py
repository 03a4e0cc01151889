"""The guard of the workers of a machine: keeps each worker, with its children and mappings, to its cap.

Three threads meet here. One waits at the gate (memory/seccomp_gate.py) and answers: it knows the process family of
the caller, and permits what fits its cap (memory/worker_tree.py). The sampler's thread reports each time what each
family uses: a family above its ceiling is stopped at once and measured exactly; whether it is ended is the supervisor's
decision, which is woken for it. The executor's own thread brings families in, grants caps and ends them. One lock for
all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal, NamedTuple

from tamis._dataclasses import dataclass
from tamis.memory import meter, sampler, shared_memory
from tamis.memory.kill_tree import end_escaped, end_tree, send
from tamis.memory.pace import has_moved
from tamis.memory.seccomp_gate import Gate, GateCall
from tamis.memory.worker_tree import FamilyMemory, ProcessFamily

_MOVED_BYTES = 4_000_000
_REMOVE_S = 1.0  # between attempts to remove files that are in use
_ZERO_DEVICE = os.makedev(1, 5)
_SYSTEM = ("/usr/", "/lib")
_LOOK_SHARE = 20  # files in memory are looked for no more often than this many times as long as it took last


@dataclass
class _GuardedWorker:
    """One worker with all below it."""

    worker: int
    family: ProcessFamily
    ceiling_bytes: int = 0
    stopped_bytes: int = 0  # it was stopped, and uses this much
    size_bytes: int = 0  # of its address space, when it was last looked at
    held_files: dict[str, int] = field(default_factory=dict)  # open, in memory and not mapped
    shared_files: set[str] = field(default_factory=set)
    shared_paths: set[str] = field(default_factory=set)
    is_starved: bool = False  # something it started was short of memory since its last grant
    was_ended: bool = False


class Notice(NamedTuple):
    """Something that users should know of.

    "refused": a worker, or one below it, did not get so much shared memory or so large a file, or may not fork (0
    bytes). "unbounded": there is no gate, and what a stage does would have to pass it.
    """

    kind: Literal["refused", "unbounded"]
    worker: int
    n_bytes: int = 0


class _Processes:
    """The limits of processes, as families read and set them."""

    def data(self, pid: int) -> int | None:
        return meter.data_bytes(pid)

    def limit(self, pid: int, n_bytes: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            meter.set_data_limit(pid, n_bytes)


class WorkerGuard:
    """`wake`: called when the supervisor should look at once. `own_folders`: where the run itself writes."""

    def __init__(self, watch: sampler.Sampler, wake: Callable[[], None], own_folders: Sequence[str] = ()) -> None:
        self._watch, self._wake, self._own_folders = watch, wake, own_folders
        self._devices, self._shared_bytes = shared_memory.memory_devices(), shared_memory.shared_total()
        self._lock = threading.RLock()
        self._wards: dict[int, _GuardedWorker] = {}  # by worker
        self._owner: dict[int, int] = {}  # pid of a worker -> worker
        self._notices: list[Notice] = []
        self._was_noticed = False
        self._before = shared_memory.present()
        self._leftovers: set[str] = set()  # files of ended workers that are still in use
        self._removed_s = self._count_after_s = 0.0
        self._gate: Gate | None = None
        self._thread: threading.Thread | None = None
        self._stop_read, self._stop_write = os.pipe()
        self.wakes_on_moves = False  # the supervisor looks seldom: it is woken when the memory in use has moved
        self._known_bytes = 0
        watch.add_listener(self._after_sample)

    # -- the executor's thread ----------------------------------------------------------------------------------------
    def attach(self, fd: int | None) -> None:
        """Attach to a new forking server; `fd` is its gate, if it has one."""
        self._leave_gate()
        if fd is not None:
            self._gate = Gate(fd)
            self._thread = threading.Thread(
                target=self._answer_all, args=(self._gate,), name="tamis-guard", daemon=True
            )
            self._thread.start()
        self._watch.sample_faster(fd is None)

    def adopt(self, worker: int, pid: int, base_bytes: int) -> None:
        with self._lock:
            self._wards[worker] = _GuardedWorker(worker, ProcessFamily(pid, base_bytes, _Processes()))
            self._owner[pid] = worker

    def grant(self, worker: int, cap_bytes: int, ceiling_bytes: int) -> None:
        """Set the most that a worker may allocate from now on, and the use at which it certainly exceeds that."""
        with self._lock:
            ward = self._wards.get(worker)
            self._watch.expect_change()
            if ward is not None:
                ward.ceiling_bytes, ward.is_starved = ceiling_bytes, False
                ward.family.grant(cap_bytes)
                if 0 < ward.stopped_bytes <= ceiling_bytes:  # between two units, and now it may have as much
                    ward.stopped_bytes = 0
                    for pid in _tree(ward.family.pid):
                        send(pid, signal.SIGCONT)

    def stopped(self) -> dict[int, int]:
        """Return the workers that were stopped for their usage."""
        with self._lock:
            return {w: ward.stopped_bytes for w, ward in self._wards.items() if ward.stopped_bytes}

    def take_notices(self) -> list[Notice]:
        with self._lock:
            notices, self._notices = self._notices, []
        return notices

    def is_starved(self, worker: int) -> bool:
        """Return True if processes started by the worker were short of memory since its last grant.

        A failure of theirs is then a memory failure and nothing else.
        """
        with self._lock:
            ward = self._wards.get(worker)
            return ward is not None and ward.is_starved

    def account(self, worker: int) -> FamilyMemory:
        """Return the memory that a worker and all its descendants took since its last grant."""
        with self._lock:
            ward = self._wards.get(worker)
            return ward.family.account if ward is not None else FamilyMemory()

    def end(self, worker: int) -> bool:
        """Kill a worker and all below it. False if it was never brought in."""
        with self._lock:
            ward = self._wards.get(worker)
            if ward is None:
                return False
            ward.was_ended = True
            ward.shared_files |= shared_memory.mapped_by(_tree(ward.family.pid))
            end_tree(ward.family.pid)
        return True

    def forget(self, worker: int, code: int) -> list[str]:
        """Remove a worker that ended with exit status `code`.

        Returns the files in shared memory that it left and that were removed.
        """
        with self._lock:
            ward = self._wards.pop(worker, None)
            if ward is None:
                return []
            self._owner.pop(ward.family.pid, None)
            # Gone in peace: what it has left (a cache for others?) is Python's to remove, when it thinks fit.
            if code == 0 and not ward.was_ended:
                return []
            self._leftovers |= ward.shared_files
            shared_memory.remove_segments(ward.family.pids)
            return self._remove_leftovers()

    def close(self) -> None:
        """Stop guarding: end and forget all workers, which are gone for good."""
        self._watch.remove_listener(self._after_sample)
        self._leave_gate()
        self._watch.sample_faster(False)
        end_escaped()
        with self._lock:
            for worker in list(self._wards):
                self.end(worker)
                self.forget(worker, -signal.SIGKILL)
            self._remove_leftovers()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def _remove_leftovers(self) -> list[str]:
        removed = shared_memory.remove_files(self._leftovers, self._before)
        self._leftovers = {path for path in self._leftovers if os.path.exists(path)}
        self._removed_s = time.monotonic()
        return removed

    def _leave_gate(self) -> None:
        if self._thread is not None and self._gate is not None:
            os.write(self._stop_write, b"x")
            self._thread.join()
            os.read(self._stop_read, 1)
            self._gate.close()
        self._thread = self._gate = None

    # -- at the gate --------------------------------------------------------------------------------------------------
    def _answer_all(self, gate: Gate) -> None:
        poll = select.poll()
        poll.register(gate.fileno(), select.POLLIN)
        poll.register(self._stop_read, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._stop_read in ready:
                return
            call = gate.take()
            if call is None:
                if gate.is_deserted:
                    poll.unregister(gate.fileno())
                continue
            with self._lock:
                try:
                    error = self._decide(call)
                except Exception:  # the caller must get an answer; what is allowed is still watched
                    error = 0
            if error:
                gate.refuse(call, error)
            else:
                gate.allow(call)

    def _decide(self, call: GateCall) -> int:
        """Return 0 to let the call pass, or the error that the caller gets."""
        pid = meter.process_of(call.pid)
        ward = self._ward_of(pid) if pid is not None else None
        if pid is None or ward is None or not ward.family.cap_bytes:
            return 0  # the forking server itself, or a worker before its first work
        family = ward.family
        if pid not in family.pids or call.call == "fork":
            family.update({family.pid: 0, **meter.descendants(family.pid)})
        if call.call == "exec":
            family.exec(pid)
            return 0
        if call.call == "fork":
            if family.fork(pid, call.copies):
                self._watch.sample_faster(True)
                return 0
            return self._refused(ward, pid, 0)
        return self._decide_growth(ward, pid, call)

    def _decide_growth(self, ward: _GuardedWorker, pid: int, call: GateCall) -> int:
        """Return 0 to let a call pass that takes memory, or the error that the caller gets."""
        family = ward.family
        is_private = call.call == "allocate" or (call.call == "grow" and not family.mapped_bytes)
        path = None if is_private else self._counted_path(call, pid)
        if path is None:
            if call.call != "map" and not family.allocate(pid, call.n_bytes):
                family.refuse(pid, call.n_bytes)  # the kernel does, and so we know
                ward.is_starved |= pid != family.pid
            return 0
        if self._map(ward, call.n_bytes, path):
            return 0
        family.refuse(pid, call.n_bytes)
        return self._refused(ward, pid, call.n_bytes)

    def _refused(self, ward: _GuardedWorker, pid: int, n_bytes: int) -> int:
        ward.is_starved |= pid != ward.family.pid
        self._notices.append(Notice("refused", ward.worker, n_bytes))
        return errno.ENOMEM

    def _map(self, ward: _GuardedWorker, n_bytes: int, path: str) -> bool:
        if not ward.family.map(n_bytes):
            ward.family.note_mapped(self._mapped_bytes(ward))  # some may be unmapped again, which no call reports
            if not ward.family.map(n_bytes):
                return False
        ward.shared_paths.add(path)
        if os.path.dirname(path) == shared_memory.SHARED_FOLDER:
            ward.shared_files.add(path)
        return True

    def _ward_of(self, pid: int) -> _GuardedWorker | None:
        above: int | None = pid
        while above is not None and above > 1:
            if above in self._owner:
                return self._wards.get(self._owner[above])
            above = meter.parent(above)
        return None

    def _counted_path(self, call: GateCall, pid: int) -> str | None:
        """Return the path of the file to be mapped ("" if unnamed); None for mappings that need not be counted.

        Not counted: devices, libraries and private memory.
        """
        if call.call == "grow":
            for mapping in meter.mappings(pid):
                if mapping.start <= call.address < mapping.start + mapping.n_bytes:
                    return mapping.path if mapping.is_shared or mapping.inode else None
            return None
        if call.fd < 0:
            return ""
        try:
            path = os.readlink(f"/proc/{pid}/fd/{call.fd}")
            status = os.stat(f"/proc/{pid}/fd/{call.fd}")
        except OSError:
            return ""
        if stat.S_ISCHR(status.st_mode):
            return "" if status.st_rdev == _ZERO_DEVICE else None
        return None if call.is_private and is_system(path) else path

    def _mapped_bytes(self, ward: _GuardedWorker) -> int:
        """Return the bytes that the family has actually mapped.

        Each mapping counts once; those the forking server had already mapped do not count.
        """
        by_file: dict[tuple[bytes, int], int] = {}
        for pid in ward.family.pids:
            for key, n_bytes in self._mappings(pid, ward.shared_paths).items():
                by_file[key] = max(by_file.get(key, 0), n_bytes)
        inherited = self._mappings(meter.parent(ward.family.pid) or 0, ward.shared_paths)
        return sum(n_bytes for key, n_bytes in by_file.items() if key not in inherited)

    def _mappings(self, pid: int, paths: set[str]) -> dict[tuple[bytes, int], int]:
        by_file: dict[tuple[bytes, int], int] = {}
        for m in meter.mappings(pid):
            if m.path in paths or (m.is_shared and (not m.path.startswith("/dev/") or m.path.startswith("/dev/zero"))):
                by_file[m.device, m.inode] = by_file.get((m.device, m.inode), 0) + m.n_bytes
        return by_file

    # -- after each look ----------------------------------------------------------------------------------------------
    def _after_sample(self) -> None:
        uses, parents = self._watch.uses, self._watch.parents
        children: dict[int, list[int]] = {}
        for pid, parent in parents.items():
            children.setdefault(parent, []).append(pid)
        with self._lock:
            is_hurried = self._gate is None
            if time.monotonic() > self._count_after_s and self._shared_memory_moved():
                self._watch.expect_change()  # the memory of processes does not show files that none has mapped
                self._count_files()
            if self._leftovers and time.monotonic() - self._removed_s > _REMOVE_S:
                self._remove_leftovers()
            for ward in self._wards.values():
                self._inspect(ward, _below(ward.family.pid, children), uses)
                is_hurried |= ward.family.has_children
        self._watch.sample_faster(is_hurried)
        if has_moved(self._known_bytes, self._watch.used_bytes):
            self._known_bytes = self._watch.used_bytes
            if self.wakes_on_moves:
                self._wake()

    def _inspect(self, ward: _GuardedWorker, members: dict[int, int], uses: Mapping[int, int]) -> None:
        """Update the family of a worker from a sample, and check the worker if it seems to use too much."""
        if len(members) > 1 or ward.family.has_children:
            self._notice_unbounded(ward)
            ward.is_starved |= any(ward.family.is_crowded(pid) for pid in ward.family.pids - {ward.family.pid})
            ward.family.update(members)
        if ward.family.mapped_bytes:
            self._note_unmapped(ward)
        used = sum(uses.get(pid, 0) for pid in members) + sum(ward.held_files.values())
        if ward.ceiling_bytes and used > ward.ceiling_bytes and not ward.stopped_bytes:
            self._check(ward, list(members))

    def _shared_memory_moved(self) -> bool:
        now = shared_memory.shared_total()
        moved = abs(now - self._shared_bytes) > _MOVED_BYTES
        self._shared_bytes = now if moved else self._shared_bytes
        return moved

    def _count_files(self) -> None:
        """Count files in memory that were written and not mapped, which no counter of a process shows."""
        began_s = time.monotonic()
        for ward in self._wards.values():
            ward.held_files = shared_memory.bytes_by_file(ward.family.pids, self._devices, self._own_folders)
        ended_s = time.monotonic()
        self._count_after_s = ended_s + _LOOK_SHARE * (ended_s - began_s)

    def _note_unmapped(self, ward: _GuardedWorker) -> None:
        """Update the mapped bytes if the address space has shrunk: it may hold fewer mappings than were granted."""
        size = sum(meter.size_bytes(pid) or 0 for pid in ward.family.pids)
        if size < ward.size_bytes:
            ward.family.note_mapped(self._mapped_bytes(ward))
        ward.size_bytes = size

    def _check(self, ward: _GuardedWorker, pids: list[int]) -> None:
        """Stop a worker that seems to use more than it may while this is measured; keep it stopped if it does."""
        for pid in pids:
            send(pid, signal.SIGSTOP)
        ward.held_files = shared_memory.bytes_by_file(pids, self._devices, self._own_folders)
        used = meter.tree_pss(pids) + sum(ward.held_files.values())
        if used > ward.ceiling_bytes:
            ward.stopped_bytes = used
            self._notice_unbounded(ward)
            ward.shared_files |= ward.held_files.keys()
            self._wake()
            return
        for pid in pids:
            send(pid, signal.SIGCONT)

    def _notice_unbounded(self, ward: _GuardedWorker) -> None:
        """Report once per run that there is no gate, and that a stage has children or took more than its limit."""
        if self._gate is None and not self._was_noticed:
            self._was_noticed = True
            self._notices.append(Notice("unbounded", ward.worker))


# -- processes --------------------------------------------------------------------------------------------------------
def _tree(pid: int) -> list[int]:
    return [pid, *meter.descendants(pid)]


def _below(pid: int, children: dict[int, list[int]]) -> dict[int, int]:
    tree = {pid: 0}
    queue: list[int] = [pid]
    while queue:
        parent = queue.pop()
        for child in children.get(parent, ()):
            tree[child] = parent
            queue.append(child)
    return tree


def is_system(path: str) -> bool:
    """Return True for libraries and files of the system (locales), judged by name: reading could take forever.

    >>> [is_system(p) for p in ("/usr/lib/locale/locale-archive", "/env/a.so", "/env/libb.so.1.2")]
    [True, True, True]
    >>> [is_system(p) for p in ("/data/a.bin", "/data/a.sol")]
    [False, False]
    """
    name = os.path.basename(path)
    return path.startswith(_SYSTEM) or name.endswith(".so") or ".so." in name
