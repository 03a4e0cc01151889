"""The interface of executors: `Workers`, by which a run starts worker processes, messages and measures them.

An executor makes them (`BaseExecutor.make_workers`); the loop of a run (run/event_loop.py) uses them and knows nothing
else of processes and machines. Covers: the protocol and the events that workers report. See also: messages.py (what is
sent to workers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tamis._dataclasses import dataclass
from tamis.engine.messages import Assign, Order, WorkerMessage
from tamis.engine.schema import EventKind

if TYPE_CHECKING:
    from tamis.engine.job import Job
    from tamis.engine.worker.config import WorkerConfig


class ServerMemory(NamedTuple):
    """Memory of the process that workers are forked from, with everything loaded.

    Includes the process that this one was forked from.
    """

    own_bytes: int  # private memory
    anon_bytes: int  # of which a worker may copy a part
    peak_bytes: int  # resident at most while loading
    n_cores: int = 0  # of its machine; 0: this one
    others_bytes: int = 0  # on another machine: other processes of the run there
    stages_bytes: int = 0  # of the peak, what loading the stages added


class Received(NamedTuple):
    """A message of a worker arrived."""

    worker: int
    message: WorkerMessage


class Died(NamedTuple):
    """A worker died within `stage`: `how` in words, and the signal that ended it (0: none)."""

    worker: int
    how: str
    signal: int = 0
    stage: str = ""


@dataclass(frozen=True)
class Incident:
    """An entry for the event log about a worker (refused, unbounded or removed), or about a node."""

    worker: int
    kind: EventKind
    text: str
    data: dict[str, Any] = field(default_factory=dict)


class NodeUp(NamedTuple):
    """A node joined: the memory of its server, the memory of the machine, its own budget, its GPUs.

    A node that comes back has a new number.
    """

    node: int
    name: str
    server: ServerMemory
    limit_bytes: int
    default_bytes: int
    devices: tuple[str, ...] = ()


class NodeDown(NamedTuple):
    """A node is gone with all its workers, whose deaths are not reported one by one."""

    node: int
    name: str
    why: str


Event = Received | Died | Incident | NodeUp | NodeDown


class Workers(Protocol):
    """The worker processes of one run.

    Lifecycle: made by the executor, `open`, any of the calls below from one thread, `close` (also after an error). Only
    `wake` is called by other threads. The caller chooses the number of each worker; messages are plain data
    (messages.py).
    """

    server: ServerMemory
    """Memory of the process that workers are forked from; valid after `open`. All zeros if there is none."""
    is_remote: bool
    """True if workers are on nodes that come and go (`NodeUp`, `NodeDown`), each with its own budget."""

    def open(self) -> None:
        """Load the job and prepare to start workers.

        Raise UsageError if its stages cannot be loaded, BudgetError if they do not fit.
        """

    def close(self) -> None:
        """End all workers and release everything; called once, after `open` began."""

    def start(self, worker: int, segment: int, environment: Mapping[str, str] | None = None, node: int = 0) -> None:
        """Start a worker for a segment of the stages on a node, with additional environment variables."""

    def assign(self, worker: int, message: Assign, cap_bytes: int, ceiling_bytes: int) -> None:
        """Set the worker's memory cap, then send it a unit.

        Stop it if it uses more than the ceiling, its children included.
        """

    def send(self, worker: int, message: Order) -> None:
        """Send a worker any other order: the size of the next block, give memory back, exit."""

    def kill(self, worker: int) -> None:
        """Kill a worker at once; `poll` reports its death."""

    def poll(self, timeout_s: float) -> list[Event]:
        """Return what happened since the last call, waiting at most `timeout_s` for something to happen.

        A longer wait than usual also ends where the memory in use on this machine moves.
        """
        ...

    def wake(self) -> None:
        """End a `poll` that is waiting; called by the thread that commits."""

    def measure(self) -> Mapping[int, tuple[int, dict[int, int]]]:
        """Return bytes in use by node (this machine: 0), in total and by worker.

        Nodes without a new measurement are left out.
        """
        ...

    def pids(self) -> Mapping[int, int]:
        """Return the process ids of the workers on this machine, for the monitor."""
        ...


WorkersFactory = Callable[["Job", "WorkerConfig", str, bool], Workers]
"""Make the workers of a run from its job, their configuration, the path of their log, and whether this process counts
in the budget.
"""
