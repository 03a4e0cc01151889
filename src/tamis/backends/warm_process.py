"""The warm process: one process with all libraries loaded, from which the forking servers of several passes are forked.

A workflow of several passes would otherwise load numpy, Arrow and the kernels once for every pass and once for every
step between them, 0.5 to 1 s each. The warm process itself never sees a job: each server is a fork, and its memory goes
with it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import NoReturn

from tamis import files
from tamis.backends import early
from tamis.backends.fork_messages import (
    FROM_FORKER,
    TO_WARM_PROCESS,
    ForkCall,
    Forked,
    ForkServer,
    LoadLibraries,
    Request,
)
from tamis.backends.forking import (
    Branch,
    Forker,
    caller_context,
    die_with_parent,
    enter,
    launch,
    leave,
    name_process,
    settle,
)
from tamis.engine.channel import Channel
from tamis.errors import WorkerError
from tamis.memory import meter
from tamis.memory.kill_tree import end_within

_MAX_STARTS = 20


class Child:
    """A process forked by the warm process, with the part of subprocess.Popen that its users need."""

    def __init__(self, warm: WarmProcess, number: int) -> None:
        self._warm_process, self._number = warm, number
        self.pid = 0
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.pid and self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        self._warm_process._pump(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, as in subprocess: negative for a signal."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left_s = 1.0 if deadline_s is None else deadline_s - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired("a process of the warm one", timeout or 0.0)
            self._warm_process._pump(min(left_s, 1.0))
        return self.returncode


class WarmProcess:
    """Starts with its first use. `modules` are imported in it, for what will be called there."""

    def __init__(self, log: str, modules: Sequence[str] = ()) -> None:
        self._log, self._modules = log, list(modules)
        self._process: subprocess.Popen[bytes] | Branch | None = None
        self._channel: Channel | None = None
        self._children: dict[int, Child] = {}
        self._groups: set[str] = set()
        self._n_children = self._n_starts = 0
        self._is_up = False

    def start(self, groups: Sequence[str] = ()) -> None:
        """Begin to load the libraries and these groups of kernels, without waiting for the end of it."""
        self._groups |= set(groups)
        if self._channel is None or self._channel.closed:
            self._open()

    def ready(self, groups: Sequence[str] = ()) -> None:
        """Have it running; what was not loaded by then, children load for themselves."""
        self.start(groups)
        while not self._is_up:
            assert self._channel is not None
            assert self._process is not None
            if self._channel.receive() is not None:
                self._is_up = True
            elif self._process.wait() != -signal.SIGKILL:
                raise WorkerError(
                    f"the process that forks the others died while starting; the end of its log:\n{self.log_tail()}"
                )
            else:
                self._open()  # killed from outside: it is not to blame

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def own_bytes(self) -> int:
        """Its private memory; what it shares with those that it forked counts by its share."""
        return (meter.own_bytes(self._process.pid) or 0) if self._process is not None else 0

    def spawn(self) -> tuple[socket.socket, Child]:
        """Start a forking server that waits for its job on the returned socket (forkserver.serve)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            return ours, self._fork(ForkServer(self._next_child()), theirs.fileno())
        finally:
            theirs.close()

    def call(self, name: str, module: str, arguments: Sequence[str], stdout: int) -> Child:
        """Run `main(arguments)` of this module in a child called `name`, with its output into this file descriptor."""
        return self._fork(ForkCall(self._next_child(), name, module, list(arguments)), stdout)

    def log_tail(self) -> str:
        return files.tail(self._log)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            end_within(self._process, 2.0)
            self._process = None

    # -- inside -------------------------------------------------------------------------------------------------------
    def _open(self) -> None:
        self._n_starts += 1
        if self._n_starts > _MAX_STARTS:
            raise WorkerError(f"the process that forks the others died {_MAX_STARTS} times; see {self._log}")
        self.close()
        self._is_up = False
        prepared = early.take(__name__)
        if prepared is not None:
            self._process, ours = prepared
        else:
            with open(files.open_to_append(self._log), "ab") as log:
                self._process, ours = launch(__name__, log.fileno())
        self._channel = Channel(ours, FROM_FORKER)
        self._channel.send(LoadLibraries(caller_context(self._log), sorted(self._groups), self._modules))

    def _next_child(self) -> int:
        self._n_children += 1
        return self._n_children

    def _fork(self, request: Request, fd: int) -> Child:
        self.ready()
        assert self._channel is not None
        child = self._children[request.child] = Child(self, request.child)
        self._channel.send_with(request, [fd])
        while not child.pid and child.returncode is None:
            self._pump(1.0)
        return child

    def _pump(self, timeout_s: float) -> None:
        """Take in what the process says; when it is gone, so are all its children."""
        if self._channel is None or self._channel.closed:
            self._mark_all_ended()
            return
        if timeout_s > 0:
            select.select([self._channel], [], [], timeout_s)
        for message in self._channel.poll():
            child = self._children.get(message.child)
            if child is None:
                continue
            if isinstance(message, Forked):
                child.pid = message.pid
            else:
                child.returncode = message.code
                del self._children[message.child]
        if self._channel.closed:
            self._mark_all_ended()

    def _mark_all_ended(self) -> None:
        for child in self._children.values():
            child.returncode = -signal.SIGKILL
        self._children.clear()


# -- the process itself -----------------------------------------------------------------------------------------------
def main(fd: int, parent: int, how: str = "", *more: str) -> NoReturn:
    name_process("tamis-warm")
    die_with_parent(parent)
    channel = Channel(socket.socket(fileno=fd), TO_WARM_PROCESS)
    is_loaded = how == early.EARLY and early.load(*more)
    hello = channel.receive()
    if hello is None:
        os._exit(0)  # the owner is gone
    enter(hello.context)
    from tamis.backends.preload import load_libraries

    load_libraries(hello.groups, warm=is_loaded)
    for name in hello.modules:
        importlib.import_module(name)
    channel.send(settle(is_branch=how == early.EARLY))
    leave(Forker(channel, _become).serve())


def _become(request: ForkServer | ForkCall, fd: int) -> int:
    if isinstance(request, ForkServer):
        from tamis.backends.forkserver import serve

        return serve(socket.socket(fileno=fd), is_loaded=True, forked=True)
    name_process(f"tamis-{request.name}")
    os.dup2(fd, 1)
    os.close(fd)
    called: int = importlib.import_module(request.module).main(request.arguments)
    return called
