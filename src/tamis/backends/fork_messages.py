"""Messages to and from the processes that fork others (forking server and warm process).

Bytes by engine/wire.py.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.wire import kinds
from tamis.engine.worker.config import WorkerConfig


class CallerContext(NamedTuple):
    """The caller's import path and folder, and where everything goes that is printed."""

    sys_path: list[str]
    cwd: str
    log: str


class LoadJob(NamedTuple):
    """To a forking server, before anything else. The pickled job follows: so many bytes."""

    context: CallerContext
    payload_bytes: int
    config: WorkerConfig


class LoadLibraries(NamedTuple):
    """To a warm process, before anything else: groups of kernels and modules to load."""

    context: CallerContext
    groups: list[str]
    modules: list[str]


@dataclass(frozen=True)
class ForkWorker:
    """To a forking server, with one end of a socket. `environment`: variables of this worker alone."""

    child: int
    environment: dict[str, str] = field(default_factory=dict)


class ForkServer(NamedTuple):
    """To a warm process, with one end of a socket: fork a forking server."""

    child: int


class ForkCall(NamedTuple):
    """To a warm process, with a descriptor: fork a process that runs `main(arguments)` of a module.

    `name` is its process name, and the descriptor its output.
    """

    child: int
    name: str
    module: str
    arguments: list[str]


class JobLoaded(NamedTuple):
    """Everything is loaded; what that takes."""

    own_bytes: int
    anon_bytes: int
    peak_bytes: int
    stages_bytes: int = 0  # of the peak, what loading the stages of a job added


@dataclass(frozen=True)
class LibrariesLoaded:
    """The libraries of every job are loaded, its stages are next: the server waits for `LoadStages`."""


class LoadStages(NamedTuple):
    """To a forking server: load the stages of the job inside so many more bytes; 0: without a limit."""

    room_bytes: int = 0


class NotLoaded(NamedTuple):
    """The job cannot be loaded, and why.

    `is_memory`: an allocation failed, of `requested_bytes` where that is known, in `stage`.
    """

    error: str
    trace: str
    is_memory: bool = False
    requested_bytes: int = 0
    stage: str = ""


class Forked(NamedTuple):
    child: int
    pid: int


class Exited(NamedTuple):
    """A child is gone; `stage`: what it was doing."""

    child: int
    pid: int
    code: int
    stage: str


Request = ForkWorker | ForkServer | ForkCall
TO_SERVER = kinds(LoadJob, LoadStages, ForkWorker)
TO_WARM_PROCESS = kinds(LoadLibraries, ForkServer, ForkCall)
FROM_FORKER = kinds(JobLoaded, LibrariesLoaded, NotLoaded, Forked, Exited)
