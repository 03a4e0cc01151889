"""Compile the missing kernels of a run before it starts, inside its budget.

Installed packages bring all kernels compiled; this is for checkouts whose kernels were edited, and for CPUs that a
package has none for. The process that compiles is one of those that the sampler counts (memory/sampler.py): it is in
the peak of the run.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence

from tamis.engine.progress import Progress, ProgressState
from tamis.errors import BudgetError
from tamis.kernels.loading import library
from tamis.kernels.loading.first_use import JOB_BYTES, NEED_BYTES, Compilation, announcement
from tamis.memory import meter
from tamis.memory.release import hygiene_env
from tamis.sizes import format_size

_REPORT_S = 0.2


def compile_missing(
    groups: Sequence[str], budget_bytes: int, count_caller: bool, report: Progress | None = None
) -> None:
    """Have the missing kernels of these groups compiled.

    `report` is called with how far it is; without it one line goes to stderr.

    BudgetError, with what to do, where compiling does not fit: the caller and the processes that compile are all there
    is then.
    """
    if library.are_ready(groups):
        return
    caller_bytes = (meter.pss() or 0) if count_caller else 0
    needed = math.ceil((caller_bytes + NEED_BYTES) / 1e6) * 1_000_000
    if budget_bytes < needed:
        raise BudgetError(
            f"kernels must be compiled first, which takes {format_size(needed)}, and the memory budget is "
            f"{format_size(budget_bytes)}; "
            "compile them beforehand (python -m tamis.kernels.compile), or give that much"
        )
    n_jobs = min(len(os.sched_getaffinity(0)), 1 + (budget_bytes - needed) // JOB_BYTES)
    with Compilation(groups, environ=hygiene_env(os.environ), n_jobs=n_jobs) as compilation:
        if report is None:
            print(announcement(compilation), file=sys.stderr, flush=True)
        else:
            report(_state(compilation))
        while not compilation.wait(_REPORT_S):
            if report is not None:
                report(_state(compilation))


def _state(compilation: Compilation) -> ProgressState:
    return {
        "phase": "compiling",
        "done": compilation.n_done,
        "of": compilation.n_kernels,
        "seconds_left": round(compilation.seconds_left),
    }
