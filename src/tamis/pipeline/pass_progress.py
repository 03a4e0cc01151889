"""Progress of workflows on stderr: a display for each pass, under its name, and one summary at the end.

Used by the commands and by workflows that are run from Python.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tamis.backends.progress import ProgressDisplay
from tamis.sizes import format_size
from tamis.terminal import clock, printable

Progress = Callable[[dict[str, Any]], None]

PASSES = {
    "keys": "reading documents, making keys",
    "decision": "deciding which ones go",
    "texts": "collecting the texts to be compared",
    "removal": "removing duplicates",
    "ids": "writing the ids of duplicates",
    "joining": "joining segments",
}


@contextlib.contextmanager
def progress_listener(progress: Progress | bool | None, more: Mapping[str, str] | None = None) -> Iterator[Progress]:
    """Yield the function that receives the states of a workflow.

    It is the caller's own; for True one that shows them, for False one that does not.
    """
    if callable(progress):
        yield progress
    elif progress:
        with show_passes(False, more) as show:
            yield show
    else:
        yield lambda _: None


@contextlib.contextmanager
def show_passes(quiet: bool, more: Mapping[str, str] | None = None) -> Iterator[Progress]:
    """Show each pass with a progress display of its own, under its name.

    `more`: names of passes in addition to those of deduplications.
    """
    with contextlib.ExitStack() as stack:
        now: list[Any] = ["", None]

        def show(state: dict[str, Any]) -> None:
            if state.get("phase") == "opened" or "error" in state:  # nothing new; failures are raised as exceptions
                return
            label = str(state.get("pass", ""))
            if now[1] is None or label != now[0]:
                stack.close()
                now[:] = [label, stack.enter_context(ProgressDisplay(quiet))]
                if not quiet and label:
                    names = {**PASSES, **(more or {})}
                    print_line(f"pass: {names.get(label.partition('-')[0], label)}")
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
