"""Progress of workflows on stderr: a display for each pass, under its name, and one summary at the end.

Used by the commands and by workflows that are run from Python.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from tamis.backends.progress import ProgressDisplay
from tamis.engine.progress import Progress, ProgressState
from tamis.engine.run_record import PassRecord
from tamis.sizes import format_size
from tamis.terminal import clock, printable

PASSES = {
    "evaluation": "indexing evaluation sets",
    "keys": "reading documents, making keys",
    "decision": "deciding which ones go",
    "texts": "collecting the texts to be compared",
    "indexed": "reading the texts of the index",
    "kept": "collecting the texts that stay",
    "removal": "removing duplicates",
    "ids": "writing the ids of duplicates",
    "joining": "joining segments",
    "ranges": "comparing keys by ranges",
    "index": "adding to the index",
    "numbers": "choosing documents of each source",
    "write": "reading documents again, writing those that stay",
    "packing": "putting the output together: size of files, splits, order",
    "scores": "collecting scores of earlier passes",
}
WEIGHTS = {
    "evaluation": 0.1,
    "decision": 0.2,
    "texts": 0.5,
    "indexed": 0.5,
    "kept": 0.5,
    "removal": 0.6,
    "index": 0.1,
    "packing": 0.3,
    "scores": 0.05,
    "ids": 0.5,
}
"""Expected work of a pass, in units of a first pass over the input; 1 if it is not named here."""
_AGAIN_WEIGHT = 0.7  # of a further pass that makes keys


def planned_pass(label: str, scope: str = "", weight: float | None = None) -> PassRecord:
    """Return the record of a pass that is to come.

    `scope`: the steps of a curation that it is for, where there may be several of its kind.

    >>> planned_pass("keys-1", "exact+fuzzy").label, planned_pass("decision-0").title
    ('keys-1 of exact+fuzzy', 'deciding which ones go')
    """
    kind, _, number = label.partition("-")
    name = PASSES.get(kind, label)
    if number.isdecimal() and int(number):
        name += f", part {int(number) + 1}"
    if weight is None:
        weight = _AGAIN_WEIGHT if kind == "keys" and number != "0" else WEIGHTS.get(kind, 1.0)
    return PassRecord(f"{label} of {scope}" if scope else label, f"{name} ({scope})" if scope else name, weight)


@contextlib.contextmanager
def progress_listener(progress: Progress | bool | None) -> Iterator[Progress]:
    """Yield the function that receives the states of a workflow.

    It is the caller's own; for True one that shows them, for False one that does not.
    """
    if callable(progress):
        yield progress
    elif progress:
        with show_passes(False) as show:
            yield show
    else:
        yield lambda _: None


@contextlib.contextmanager
def show_passes(quiet: bool) -> Iterator[Progress]:
    """Show each pass with a progress display of its own, under its name."""
    with contextlib.ExitStack() as stack:
        now: list[Any] = ["", None]

        def show(state: ProgressState) -> None:
            if state.get("phase") == "opened" or "error" in state:  # nothing new; failures are raised as exceptions
                return
            label = str(state.get("pass_label", ""))
            if now[1] is None or label != now[0]:
                stack.close()
                now[:] = [label, stack.enter_context(ProgressDisplay(quiet))]
                if not quiet and label:
                    print_line(f"pass: {PASSES.get(label.partition('-')[0], label)}")
            if "share" in state and "documents" not in state:
                state = {"phase": f"{state['phase']}: {state['share']:.0%}"}
            now[1].show(state)

        yield show


def print_line(line: str) -> None:
    """Print one line on stderr; ignore a stream that is closed."""
    with contextlib.suppress(OSError, ValueError):
        print(printable(line), file=sys.stderr, flush=True)


def describe_cost(seconds: float, peak_bytes: int) -> str:
    """Format the time and peak memory of a job for its summary.

    >>> describe_cost(75.0, 120_000_000)
    '1:15, peak memory 120 MB'
    """
    return clock(seconds) + (f", peak memory {format_size(peak_bytes)}" if peak_bytes else "")
