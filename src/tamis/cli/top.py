"""`tamis top`: a run in the terminal, live, from its run directory; for people on ssh."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tamis.cli import options
from tamis.cli.progress import clock
from tamis.sizes import format_size

if TYPE_CHECKING:
    from tamis.observe.live import Live

_BLOCKS = " ▁▂▃▄▅▆▇█"
# Of memory/pressure.py.
_LEVELS = (
    "green",
    "yellow: no growth",
    "orange: only the end of the pipeline starts",
    "red: workers are stopped",
    "black: one worker",
)


def top(
    output: Annotated[str, typer.Argument(help="Output folder of a run.")],
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the state now, and stop.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Watch a run: memory against the budget, workers, documents, speed, time left, last units and events.

    Works during the run, after it, and on another machine that sees the folder. Ends with the run, or with Ctrl-C.

    Example: tamis top clean/
    """
    from tamis.cli.show import print_json, print_lines
    from tamis.observe.live import read_live
    from tamis.observe.verdicts import run_folder

    folder = run_folder(output)
    live = read_live(folder)
    if as_json:
        print_json(asdict(live))
        return
    if once or not sys.stdout.isatty():
        print_lines(lines_of(live))
        return
    from rich.console import Console
    from rich.live import Live as Screen
    from rich.text import Text

    with Screen(console=Console(highlight=False), auto_refresh=False, screen=True) as screen:
        while True:
            screen.update(
                Text("\n".join(lines_of(live, screen.console.width)), no_wrap=True, overflow="ellipsis"), refresh=True
            )
            if live.status == "finished":
                break
            time.sleep(interval)
            live = read_live(folder)
    print_lines(lines_of(live))


def lines_of(live: Live, width: int = 80) -> list[str]:
    """The whole picture as lines of text."""
    lines = [f"{live.name or 'run'}: {live.status}, {clock(live.seconds)}"]
    budget = max(live.budget_bytes, 1)
    lines.append(
        f"memory   {format_size(live.used_bytes)} of {format_size(live.budget_bytes)} ({live.used_bytes / budget:.0%}), "
        f"peak {format_size(live.peak_bytes)}, {_LEVELS[min(live.level, len(_LEVELS) - 1)]}"
    )
    if live.history:
        lines.append("         " + sparkline(live.history[-max(10, width - 10) :], budget))
    for worker, used in sorted(live.workers.items(), key=lambda item: int(item[0]) if item[0].isdigit() else 0):
        lines.append(f"  worker {worker:>3s}  {format_size(used):>9s}  {bar(used / budget, max(10, width - 30))}")
    total = max(live.read_bytes + live.left_bytes, 1)
    eta = f", {clock(live.eta_s)} left" if live.eta_s is not None and live.status == "running" else ""
    lines.append(
        f"input    {live.read_bytes / total:.0%} of {format_size(total)}, {format_size(live.bytes_per_s)}/s{eta}"
    )
    lines.append(
        f"documents {live.documents:,}: kept {live.written:,}, dropped {live.dropped:,}, quarantined {live.quarantined:,}"
    )
    if live.units:
        lines.append("last partitions (worker, decoded, peak, seconds)")
        lines += [f"  {w:>3d}  {format_size(d):>9s}  {format_size(p):>9s}  {s:6.2f}" for w, d, p, s in live.units]
    if live.events:
        lines.append("last events")
        lines += [
            f"  {time.strftime('%H:%M:%S', time.localtime(at))}  {kind}  {text}" for at, kind, text in live.events
        ]
    return lines


def sparkline(values: list[int], top_value: int) -> str:
    """
    >>> sparkline([0, 4, 8, 9], 8)
    ' ▄██'
    """
    return "".join(_BLOCKS[min(8, round(8 * v / max(top_value, 1)))] for v in values)


def bar(share: float, width: int) -> str:
    """
    >>> bar(0.5, 4)
    '##..'
    """
    full = min(width, round(share * width))
    return "#" * full + "." * (width - full)
