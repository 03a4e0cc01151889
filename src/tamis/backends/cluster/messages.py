"""What the driver and the agents on the nodes say to each other, typed; engine/wire.py makes bytes of them.

To an agent (`TO_AGENT`): Open a job (start what its workers are forked from), Start and Kill workers, pass orders on to them, Close the job, Leave.
From an agent (`FROM_AGENT`): Hello; Opened or Refused; what workers Told, that they Died and what was Incident of them (as in
engine/workers_interface.py); Use of memory, which is also the sign of life; Closed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tamis.backends.fork_messages import Surroundings
from tamis.engine.messages import Assign
from tamis.engine.wire import kinds
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.workers_interface import Died, Incident, ServerMemory


# -- to an agent ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Open:
    """Have workers ready to be started for a job (`payload`, base64; `job`: its number). `visible`: files that this node must see, or it cannot take part."""

    job: int
    payload: str
    config: WorkerConfig
    surroundings: Surroundings
    visible: list[str]
    kernel_groups: list[str]
    budget_bytes: int


@dataclass(frozen=True)
class Start:
    worker: int
    segment: int
    environment: dict[str, str]


@dataclass(frozen=True)
class Give:
    """A unit for a worker, with its cap (engine/workers_interface.py)."""

    worker: int
    order: Assign
    cap_bytes: int
    ceiling_bytes: int


@dataclass(frozen=True)
class Tell:
    """Any other order for a worker, as its own message encodes it."""

    worker: int
    order: str


@dataclass(frozen=True)
class Kill:
    worker: int


@dataclass(frozen=True)
class Close:
    """End the workers of a job; the agent stays for the next one."""

    job: int


@dataclass(frozen=True)
class Leave:
    """Nothing more is wanted of this agent."""


TO_AGENT = kinds(Open, Start, Give, Tell, Kill, Close, Leave)


# -- from an agent --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Hello:
    """A node that can work. `machine` tells machines apart; `others_bytes`: of the process that started the agent."""

    name: str
    machine: str
    n_cpus: int
    limit_bytes: int  # more memory than this the machine, its control group or Ray's declaration does not allow
    default_bytes: int  # the budget where the user names none
    others_bytes: int
    devices: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Opened:
    """Workers can be started; what their forking server takes."""

    job: int
    server: ServerMemory


@dataclass(frozen=True)
class Refused:
    """Workers cannot be started here; `kind`: "usage" (the stages cannot be loaded), "unseen" (files), "worker"."""

    job: int
    kind: str
    error: str


@dataclass(frozen=True)
class Told:
    """WorkerMessage of a worker, as its own message encodes them."""

    worker: int
    news: str


@dataclass(frozen=True)
class Use:
    """Bytes in use on the node at most since the last message, and by worker now."""

    peak_bytes: int
    workers: list[tuple[int, int]]


@dataclass(frozen=True)
class Closed:
    job: int


FROM_AGENT = kinds(Hello, Opened, Refused, Told, Died, Incident, Use, Closed)
