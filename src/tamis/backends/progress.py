"""Progress of a run: one live line on a terminal, a plain line every few seconds elsewhere. Written to stderr.

A problem with the terminal must never end a run: errors while showing are swallowed.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tamis.engine.progress import Progress, ProgressState
from tamis.sizes import format_size
from tamis.terminal import CLEAR_LINE, LiveLine, clock, is_terminal, printable

if TYPE_CHECKING:
    from tamis.engine.run.run_result import RunResult

PLAIN_EVERY_S = 5.0
_PHASES = {
    "starting": "starting ...",
    "schema": "bringing all files to one schema ...",
    "partitioning": "sorting documents into folders ...",
    "sizing": "joining output files ...",
    "samples": "describing samples ...",
    "interrupted": "interrupted: waiting for what is being committed ...",
}


class ProgressRates:
    """Speed and time left, from the states that a run reports."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None  # seconds, bytes left
        self._share = 0.0

    def line(self, state: ProgressState) -> str:
        """Format a state of the phase "working" as one line."""
        seconds, left_bytes = float(state["seconds"]), int(state["left_bytes"])
        if state.get("share", 1.0) != self._share:  # the next sampling step reads all of the input again
            self._first, self._share = None, state.get("share", 1.0)
        if self._first is None:
            self._first = (seconds, left_bytes)
        done_bytes, passed_s = self._first[1] - left_bytes, seconds - self._first[0]
        rate = int(state["read_bytes"]) / seconds if seconds > 0 else 0.0
        eta = clock(left_bytes / (done_bytes / passed_s)) if done_bytes > 0 and passed_s > 1 else "-:--"
        total = max(int(state["total_bytes"]), 1)
        share = f" (sample of {state['share']:.3g})" if state.get("share", 1.0) != 1.0 else ""
        return (
            f"{100 * (total - left_bytes) / total:3.0f} %{share}  ETA {eta}  "
            f"memory {format_size(state['used_bytes'])} / {format_size(state['budget_bytes'])}  "
            f"{format_size(rate)}/s  {state['documents']:,} documents  "
            f"kept {state['written']:,}  dropped {state['dropped']:,}  quarantined {state['quarantined']:,}"
        )


class ProgressDisplay:
    """Takes the states of a run (see engine/run/run.py) and shows them. Use as a context manager."""

    def __init__(self, quiet: bool = False, inline: bool = False) -> None:
        """Show a run. `inline`: stages use the same terminal, so that no line of it can be written over."""
        self._quiet, self._inline = quiet, inline
        self._rates = ProgressRates()
        self._live: LiveLine | None = None
        self._phase = ""
        self._printed_s = time.monotonic()
        self._in_notebook, self._width = False, 0

    def __enter__(self) -> ProgressDisplay:
        rewrites = not self._quiet and not self._inline
        self._in_notebook = rewrites and "ipykernel" in sys.modules
        if rewrites and not self._in_notebook and is_terminal(sys.stderr):
            self._live = LiveLine(sys.stderr)
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            with contextlib.suppress(OSError, ValueError):
                print(" " * self._width, end="\r", file=sys.stderr, flush=True)
            self._width = 0
        if self._live is not None:
            with contextlib.suppress(OSError, ValueError):
                self._live.close()
            self._live = None

    def show(self, state: ProgressState) -> None:
        if self._quiet:
            return
        with contextlib.suppress(OSError, ValueError):
            self._show(state)

    def note(self, text: str) -> None:
        """Print a line that stays above the progress display; may be called from another thread."""
        if self._quiet:
            return
        with contextlib.suppress(OSError, ValueError):
            if self._live is not None:
                self._live.above(text)
            else:
                print(printable(text), file=sys.stderr, flush=True)

    def print(self, text: str) -> None:
        """Print lines of a run, which stay above the progress display; they are printable (engine/run/console.py)."""
        with contextlib.suppress(OSError, ValueError):
            if self._live is not None:
                self._live.print(text)
                return
            if self._width:  # in a notebook
                print(" " * self._width, end="\r", file=sys.stderr)
            print_lines(text)

    def _show(self, state: ProgressState) -> None:
        phase = str(state.get("phase", "working"))
        is_new, self._phase = phase != self._phase, phase
        text = printable(_text(state, self._rates))
        if self._live is not None:
            self._live.show(text)
            return
        if self._in_notebook:  # one line, written over, as progress bars there are
            print(text.ljust(self._width), end="\r", file=sys.stderr, flush=True)
            self._width = len(text)
            return
        now = time.monotonic()
        # "starting" takes a second and says nothing worth a line in a log.
        if (phase in ("compiling", "schema", "sizing") and is_new) or (
            phase in ("compiling", "working") and now - self._printed_s >= PLAIN_EVERY_S
        ):
            self._printed_s = now
            print(text, file=sys.stderr, flush=True)


def _text(state: ProgressState, rates: ProgressRates) -> str:
    phase = str(state.get("phase", "working"))
    if phase == "compiling":
        return (
            f"compiling kernels that were edited or not built for this CPU (once): {state['done']} of {state['of']}, "
            f"about {clock(state['seconds_left'])} left ..."
        )
    return rates.line(state) if phase == "working" else _PHASES.get(phase, phase)


def print_lines(text: str) -> None:
    """Print lines on stderr, over a line of progress that another display may have there."""
    with contextlib.suppress(OSError, ValueError):
        start = CLEAR_LINE if is_terminal(sys.stderr) else ""
        print(start + text, file=sys.stderr, flush=True)


def in_one_line(name: str, result: RunResult) -> str:
    """Summarize in one line what a run did, for callers from Python."""
    ledger = result.ledger
    if result.status == "already":
        return f"{name}: finished earlier, nothing to do ({ledger.written.n:,} documents in {result.output})"
    aside = f", {ledger.quarantined.n:,} in quarantine" if ledger.quarantined.n else ""
    whole = result.record or result
    used = f"{format_size(whole.peak_bytes)} of {format_size(result.budget_bytes)}"
    peak = f", peak memory {used}" if whole.peak_bytes else ""
    fate = f", {ledger.written.n:,} written, {ledger.n_dropped:,} dropped"
    if ledger.stage_records and not (ledger.records.n or ledger.written.n or ledger.n_dropped):
        fate = ""  # stages that read and write files by themselves pass no documents on
    return f"{name}: {ledger.n_read:,} documents read{fate}{aside}; {clock(whole.seconds)}{peak}"


def at_most_every(seconds: float, show: Progress, clock_s: Callable[[], float] = time.monotonic) -> Progress:
    """Limit how often `show` is called; another phase is shown at once.

    >>> shown, times = [], iter([0.0, 1.0, 5.0])
    >>> slow = at_most_every(3, shown.append, lambda: next(times))
    >>> for n in range(3):
    ...     slow({"phase": "working", "n": n})
    >>> [state["n"] for state in shown]
    [0, 2]
    """
    last: list[Any] = ["", 0.0]

    def seldom(state: ProgressState) -> None:
        now_s = clock_s()
        if state.get("phase") != last[0] or now_s - last[1] >= seconds:
            last[:] = [state.get("phase"), now_s]
            show(state)

    return seldom
