"""Messages between the driver and the agents on the nodes, typed; engine/wire.py makes bytes of them.

`TO_AGENT`: open a job (start what its workers are forked from), start and kill workers, pass orders to them, close the
job, leave. `FROM_AGENT`: a description of the node; a job opened, refused or closed; news and deaths of workers and
incidents (as in engine/workers_interface.py); memory in use, which is also the sign of life.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tamis.backends.fork_messages import CallerContext
from tamis.engine.messages import Assign
from tamis.engine.wire import kinds
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.workers_interface import Died, Incident, ServerMemory


# -- to an agent ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class OpenJob:
    """Prepare to start workers for a job (`payload`, base64; `job`: its number)."""

    job: int
    payload: str
    config: WorkerConfig
    context: CallerContext
    visible: list[str]  # files that this node must see to take part
    kernel_groups: list[str]
    budget_bytes: int


@dataclass(frozen=True)
class StartOrder:
    worker: int
    segment: int
    environment: dict[str, str]


@dataclass(frozen=True)
class AssignOrder:
    """A unit for a worker, with its cap (engine/workers_interface.py)."""

    worker: int
    order: Assign
    cap_bytes: int
    ceiling_bytes: int


@dataclass(frozen=True)
class ForwardOrder:
    """Any other order for a worker, as its own message encodes it."""

    worker: int
    order: str


@dataclass(frozen=True)
class KillOrder:
    worker: int


@dataclass(frozen=True)
class CloseJob:
    """End the workers of a job; the agent stays for the next one."""

    job: int


@dataclass(frozen=True)
class Leave:
    """Exit: the session is over."""


TO_AGENT = kinds(OpenJob, StartOrder, AssignOrder, ForwardOrder, KillOrder, CloseJob, Leave)


# -- from an agent ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Hello:
    """A node that can work. `machine` identifies the machine; `others_bytes`: of the process that started the agent."""

    name: str
    machine: str
    n_cpus: int
    limit_bytes: int  # the memory that the machine, its control group or the engine's declaration allows
    default_bytes: int  # the budget where the user names none
    others_bytes: int
    devices: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class JobOpened:
    """Workers can be started; `server` is the memory of their forking server."""

    job: int
    server: ServerMemory


@dataclass(frozen=True)
class JobRefused:
    """Workers cannot be started here; `kind`: "usage" (the stages cannot be loaded), "unseen" (files), "worker"."""

    job: int
    kind: str
    error: str


@dataclass(frozen=True)
class WorkerNews:
    """A message of a worker, as its own message encodes it."""

    worker: int
    news: str


@dataclass(frozen=True)
class MemoryUse:
    """Bytes in use on the node at most since the last message, and by worker now."""

    peak_bytes: int
    workers: list[tuple[int, int]]


@dataclass(frozen=True)
class JobClosed:
    job: int


FROM_AGENT = kinds(Hello, JobOpened, JobRefused, WorkerNews, Died, Incident, MemoryUse, JobClosed)
