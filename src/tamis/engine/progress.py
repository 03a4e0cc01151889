"""The state of a run while it works, as its caller, the run record and displays receive it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict


class ProgressState(TypedDict, total=False):
    """The state of a run, some times a second. `phase` is always there; figures are there as far as the phase has any.

    Phases: opened (a curation), starting, compiling (`done` of `of` kernels, `seconds_left`), schema, working, sizing,
    interrupted; those of a decision between passes have names of their own and a `share`. `error` and `exit_code` are
    the last report of a decision that failed.
    """

    phase: str
    pass_label: str  # of a workflow: which pass this is about
    share: float  # of the input that this sampling step covers; of a decision, how much of it is done
    seconds: float
    left_s: float | None  # of the whole run, where that can be told
    used_bytes: int
    peak_bytes: int
    budget_bytes: int
    total_bytes: int  # decoded bytes of the input ...
    left_bytes: int  # ... and those that are still to be read
    read_bytes: int  # by this session
    all_read_bytes: int  # by all sessions
    documents: int
    written: int
    dropped: int
    quarantined: int
    not_sampled: int
    added: int
    in_flight: int
    workers: int
    level: int  # of memory pressure
    done: int
    of: int
    seconds_left: int
    error: str
    exit_code: int


Progress = Callable[[ProgressState], None]
"""Called with the state of a run some times a second."""
