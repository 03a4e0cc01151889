"""A process that forks others on request: takes messages with file descriptors, reports forks and exits.

The forking server (forkserver.py) and the warm process (warm_process.py) are both made of it; they differ in what a
child becomes. Forking is safe because such a process has one thread. Children die with it, and it dies with its
parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tamis import files
from tamis.backends.fork_messages import CallerContext, Exited, Forked, JobLoaded, Request
from tamis.engine import activity as doing
from tamis.engine.channel import Channel
from tamis.memory import meter, shared_memory
from tamis.memory.kill_tree import end_descendants, end_strays
from tamis.memory.release import hygiene_env, tune_malloc

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(parent: int, how: int = signal.SIGKILL) -> None:
    """Ask the kernel for this signal when the parent is gone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Ask the kernel to make this process the parent of its descendants whose own parent ends, daemons among them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def name_process(name: str) -> None:
    """Set the process name that `top` and `ps -o comm` show; at most 15 characters."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)


class Forker:
    """Forks a child for every request with one file descriptor; the child runs `become(request, fd)`.

    Reports that it is `Forked` and, when it has ended, that it has `Exited`. Whatever else turns up as a child of this
    process was started by one of them, and is ended when that is gone.
    """

    def __init__(self, channel: Channel, become: Callable[[Any, int], int]) -> None:
        self._channel, self._become = channel, become
        self._children: dict[int, tuple[int, mmap.mmap]] = {}  # pid -> number, and where it notes what it is doing
        self._is_orphan = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)

    def serve(self) -> int:
        """Serve requests until the other side is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        adopt_orphans()
        # From here on there may be children, and their children: they are ended before this process is.
        signal.signal(signal.SIGTERM, self._note_end)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.siginterrupt(number, False)  # a fork that waits at the gate is not to fail for it
        die_with_parent(os.getppid(), signal.SIGTERM)
        before = shared_memory.present()
        try:
            return self._serve()
        finally:
            below = meter.descendants()  # of a supervisor that was killed: no other process cleans up after them
            shared = shared_memory.mapped_by(below)
            end_descendants()
            shared_memory.remove_files(shared, before)
            shared_memory.remove_segments(below.keys())

    def _note_end(self, *_: object) -> None:
        self._is_orphan = True

    def _serve(self) -> int:
        while True:
            select.select([self._channel.fileno(), self._wake_read], [], [], 5.0)
            with contextlib.suppress(BlockingIOError):
                while os.read(self._wake_read, 4096):
                    pass
            self._reap()
            requests = self._channel.poll(with_fds=True)
            if self._is_orphan or self._channel.closed:
                return 0
            for request in requests:
                self._fork(request, self._channel.fds.pop(0))

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._children:
                child, page = self._children.pop(pid)
                code = os.waitstatus_to_exitcode(status)
                end_strays(self._children)
                exited = Exited(child, pid, code, doing.noted(page))
                page.close()
                self._channel.send(exited)

    def _fork(self, request: Request, fd: int) -> None:
        page = doing.shared_page()
        pid = os.fork()
        if pid:
            os.close(fd)
            self._children[pid] = request.child, page
            self._channel.send(Forked(request.child, pid))
            return
        status = 1
        try:
            self._leave()
            doing.note_in(page)
            status = self._become(request, fd)
        except BaseException:  # the end of this child: raised further it would run what the parent has on its stack
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _leave(self) -> None:
        """Detach a fresh child from what it must not share with this process."""
        parent = os.getppid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent(parent)
        self._channel.sock.close()
        os.close(self._wake_read)
        os.close(self._wake_write)


def launch(
    module: str, log: int, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `main(descriptor, parent)` of a module in a fresh interpreter: the process, and our end of its socket.

    `environment`: ours, unless given.

    Without the collector, which `settle` turns on again, and with -P: a file named like a module in the current folder
    must not be run.
    """
    code = (
        "import gc, sys; gc.disable(); sys.path.insert(0, sys.argv[3]); "
        f"from {module} import main; main(int(sys.argv[1]), int(sys.argv[2]))"
    )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(theirs.fileno()), str(os.getpid()), source],
            pass_fds=[theirs.fileno()],
            env=hygiene_env(os.environ if environment is None else environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return process, ours


class Branch:
    """A process forked by `branch`, with the part of subprocess.Popen that is needed."""

    living: set[int] = set()  # all of this process

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        Branch.living.add(pid)

    def poll(self) -> int | None:
        return self._take(os.WNOHANG)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, as in subprocess: negative for a signal."""
        if timeout is None:
            return self._take(0) or 0
        deadline_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.001)
        return code

    def _take(self, flags: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                Branch.living.discard(self.pid)
        return self.returncode


def branch(module: str, *more: str) -> tuple[Branch, socket.socket]:
    """Start a process like `launch`, but forked from this one, with the modules it has imported.

    For a command that has just started and has one thread. The interpreter and the standard library are loaded
    once instead of twice, which saves 50 ms and 5 MB that both processes share.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    parent = os.getpid()
    gc.freeze()  # a collector that looked at what is shared would copy all of it
    pid = os.fork()
    if not pid:
        try:
            ours.detach()
            _part_from_caller(theirs.fileno())
            importlib.import_module(module).main(theirs.detach(), parent, *more)
        except BaseException:  # as in `Forker._fork`; the caller reads of it in the log, or sees the socket close
            traceback.print_exc()
        finally:
            os._exit(1)
    theirs.close()
    adopt_orphans()  # daemons of a stage come to us when their forking server is killed (`end_forks`)
    return Branch(pid), ours


def _part_from_caller(fd: int) -> None:
    """Detach a forked process from its caller, as an exec would.

    Leaves no open files, no terminal and no script, and applies the allocator settings.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.closerange(3, fd)
    os.closerange(fd + 1, os.sysconf("SC_OPEN_MAX"))
    if not sys.flags.safe_path:
        del sys.path[:1]
    sys.argv = ["-c"]
    sys.modules["__main__"] = types.ModuleType("__main__")  # what processes of a stage would run again
    os.environ.update(hygiene_env(os.environ))
    tune_malloc(os.environ)


def leave(status: int) -> NoReturn:
    """End at once: taking down the interpreter and all libraries would take 60 ms of a caller's time."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def caller_context(log: str) -> CallerContext:
    """Return the context of this process, for another that works on its behalf and prints to `log`."""
    return CallerContext([p for p in sys.path if p] or [os.getcwd()], os.getcwd(), log)


def enter(of_caller: CallerContext) -> None:
    """Take over the caller's import path and folder; everything printed goes to the log."""
    sys.path[:] = of_caller.sys_path
    with contextlib.suppress(OSError):
        os.chdir(of_caller.cwd)
    out = files.open_to_append(of_caller.log)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)


def settle(drop_pages: bool = True, is_branch: bool = False) -> JobLoaded:
    """Freeze the collector and return unneeded pages after loading, before the first fork.

    Not again in a fork of a process that did: looking for them takes 60 ms. A branch shares pages with the command; as
    they are written to, each gets its own, so all of them count here.
    """
    from tamis.memory.release import drop_clean_pages

    gc.collect()  # what was frozen earlier is not looked at again
    gc.freeze()
    gc.enable()  # it was off while loading: what is being loaded stays
    if drop_pages:
        drop_clean_pages()
    status = meter.status() or {}
    anon = status.get("RssAnon", 0)
    return JobLoaded(
        own_bytes=anon if is_branch else meter.own_bytes() or 0, anon_bytes=anon, peak_bytes=status.get("VmHWM", 0)
    )
