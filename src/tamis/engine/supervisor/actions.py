"""Actions of the supervisor: its answer to every event is a list of these. run/event_loop.py carries them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.messages import StagedFile
from tamis.engine.schema import CoveredRange, EventKind
from tamis.engine.supervisor.state import KillReason
from tamis.engine.units import Piece, Unit


@dataclass(frozen=True)
class StartWorker:
    """Start a worker; `environment`: variables of its process alone, such as the GPUs that it sees."""

    worker: int
    segment: int
    environment: dict[str, str] = field(default_factory=dict)
    node: int = 0


class AssignUnit(NamedTuple):
    """Assign a unit to a worker, with a memory cap.

    `fence`: the number of the attempt; a message with an older one is ignored.
    """

    worker: int
    unit: Unit
    fence: int
    cap_bytes: int


class RequestBlock(NamedTuple):
    """A feeder may produce its next block, of this size."""

    worker: int
    block_bytes: int


class TrimWorker(NamedTuple):
    """Have an idle worker give memory back to the system."""

    worker: int


class StopWorker(NamedTuple):
    """Let the worker end by itself (it is idle)."""

    worker: int


class KillWorker(NamedTuple):
    """End a worker at once; its unit is tried again."""

    worker: int
    why: KillReason


class CommitPartition(NamedTuple):
    """Make the staged files of a partition part of the output. `covered`: the input that they cover."""

    partition: int
    first: Piece
    sampling_step: int
    covered: list[CoveredRange]
    files: list[StagedFile]
    ledger: dict[str, Any]


class ReplaceFiles(NamedTuple):
    """Replace output files that follow each other by others with the same documents.

    `names`: of the new files; empty: after the old ones. `content`: as in ReplaceRecord (engine/schema.py).
    """

    partition: int
    old: list[str]
    files: list[StagedFile]
    names: Sequence[str] = ()
    content: str | None = None


class Committed(NamedTuple):
    """The answer to `CommitPartition` or `ReplaceFiles`: what is in the log now, or why it is not."""

    partition: int
    covered: list[CoveredRange]
    n_bytes: int
    error: str = ""


class DiscardFiles(NamedTuple):
    """Remove scratch or staged files that no unit needs any more."""

    paths: list[str]


@dataclass(frozen=True)
class Note:
    """Something worth recording: kind, one sentence, figures."""

    kind: EventKind
    text: str
    data: Mapping[str, object] = field(default_factory=dict)


Action = (
    StartWorker
    | AssignUnit
    | RequestBlock
    | TrimWorker
    | StopWorker
    | KillWorker
    | CommitPartition
    | ReplaceFiles
    | DiscardFiles
    | Note
)
