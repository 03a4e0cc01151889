"""`tamis top`: a run in the terminal, live, from its run directory; for people on ssh."""

from __future__ import annotations

import functools
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Option
from tamis.cli.terminal.show import clip, fold_line
from tamis.sizes import format_size
from tamis.stores.urls import is_bucket
from tamis.terminal import Screen, clock

if TYPE_CHECKING:
    from tamis.engine.run_record import RunCounts
    from tamis.observe.live import LiveRun

_SILENT_S = 3600.0
_BLOCKS = " ▁▂▃▄▅▆▇█"


def top(
    output: Annotated[str, Argument(help="Output folder of a run, or its run directory.")],
    interval: Annotated[float, Option(min=0.2, help="Seconds between two updates.")] = 1.0,
    once: Annotated[bool, Option("--once", help="Show the state now, and stop.")] = False,
    scratch: Annotated[Path | None, Option(help="The scratch folder of a deduplication, if it was given one.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Watch a run: memory, processes, stages, GPUs, speed, time left, and the last partitions and events.

    Works during the run, after it, and on another machine that sees the folder. Of a deduplication or a curation it
    shows the pass under way. Ends with the run, or with Ctrl-C; on another machine, where a run that was killed looks
    like one that is slow, after an hour without news. Of an output in a bucket it shows what the run sent there when it
    ended last.

    Example: tamis top clean/
    """
    from tamis.cli.terminal.show import print_json, print_lines
    from tamis.observe.passes import find_run

    folder = find_run(output)
    read_state = functools.partial(_read_state, folder, None if scratch is None else str(scratch))
    live = read_state()
    if as_json:
        print_json(live.to_dict())
        return
    if once or not sys.stdout.isatty():
        print_lines(lines_of(live))
        return
    with Screen() as screen:
        while True:
            screen.show(lines_of(live, screen.width))
            if _has_ended(live, is_bucket(output)):
                break
            time.sleep(interval)
            live = read_state()
    print_lines(lines_of(live))


def _read_state(folder: Path, scratch: str | None) -> LiveRun:
    """Return the current state of the run."""
    from tamis.files import is_held
    from tamis.observe.live import read_live
    from tamis.observe.passes import find_shown_run

    location = find_shown_run(folder, scratch)
    live = read_live(location.run_dir, whole_dir=folder)
    # A machine may be suspended for a while: the locks show whether a process works on the run.
    if live.status == "stopped" and (is_held(folder / "dedup.lock") or is_held(location.run_dir / "lock")):
        live = replace(live, status="running")
    return live


def _has_ended(live: LiveRun, is_far: bool) -> bool:
    """Return True if certainly no process works on the run any more.

    Locks are those of this machine, and clocks of others may be wrong. `is_far`: its output is in a bucket,
    which receives no updates from a run before its end.
    """
    if live.status == "stopped":
        return is_far or live.host == os.uname().nodename or time.time() - live.total.at > _SILENT_S
    return live.status == "finished"


def lines_of(live: LiveRun, width: int = 80) -> list[str]:
    """Return the whole display as lines of text."""
    from tamis.observe.points import LEVELS
    from tamis.terminal import time_of_day

    eta = f", {clock(live.eta_s)} left" if live.eta_s is not None and live.status == "running" else ""
    lines = [f"{live.name or 'run'}: {live.status}, {clock(live.seconds)}{eta}", *_passes(live)]
    budget = max(live.total.budget_bytes, 1)
    colour, means = LEVELS[max(0, min(live.total.level, len(LEVELS) - 1))]
    lines.append(
        f"memory   {format_size(live.total.used_bytes)} of {format_size(live.total.budget_bytes)} "
        f"({live.total.used_bytes / budget:.0%}), "
        f"peak {format_size(live.total.peak_bytes)}, {colour}{f': {means}' if live.total.level > 0 else ''}"
    )
    if live.history:
        lines.append("         " + sparkline(live.history[-max(10, width - 10) :], budget))
    lines += _processes(live, budget, width)
    total = max(live.input_bytes or live.total.read_bytes + live.total.left_bytes, 1)
    done = min(max(1 - live.total.left_bytes / total, 0.0), 1.0)
    lines.append(f"input    {done:.0%} of {format_size(total)}, {format_size(live.bytes_per_s)}/s")
    lines += fold_line(_documents(live.counts), width)
    lines += _nodes(live) + [part for line in _machine(live) for part in fold_line(line, width)]
    lines += _stages(live, width) + _gpus(live)
    if live.units:
        lines.append("last partitions (worker, decoded, peak, seconds)")
        lines += [f"  {w:>3d}  {format_size(d):>9s}  {format_size(p):>9s}  {s:6.2f}" for w, d, p, s in live.units]
    if live.alerts:
        lines.append("last alerts")
        lines += [f"  {time_of_day(at)}  {level}  {text}" for at, level, text in live.alerts]
    if live.events:
        lines.append("last events")
        lines += [f"  {time_of_day(at)}  {kind}  {text}" for at, kind, text in live.events]
    return lines


def _documents(counts: RunCounts) -> str:
    """Return the line of documents, whose figures add up."""
    duplicates = f", of which {counts.duplicates:,} duplicates" if counts.duplicates is not None else ""
    others = (("not in this sample", counts.not_sampled), ("in flight", counts.in_flight))
    added = f" and {counts.added:,} made by stages" if counts.added else ""
    return (
        f"documents {counts.records:,}{added}: kept {counts.written:,}, dropped {counts.dropped:,}{duplicates}; "
        f"quarantined {counts.quarantined:,}{''.join(f', {name} {n:,}' for name, n in others if n)}"
    )


_MARKS = {"finished": "x", "running": ">", "waiting": " "}


def _passes(live: LiveRun) -> list[str]:
    """Return a line for each pass of a run of several: what is done, what is being done, what is to come."""
    passes = live.record.passes if live.record is not None else []
    if len(passes) < 2:
        return []
    lines = []
    for p in passes:
        took = clock(p.seconds) if p.seconds else ""
        share = f"{p.share:.0%}" if p.status == "running" else ""
        lines.append(f"  [{_MARKS[p.status]}] {p.text[:50]:<50s}  {share:>4s}  {took}".rstrip())
    return lines


def _processes(live: LiveRun, budget: int, width: int) -> list[str]:
    """Return a line for every process with its memory."""
    if not live.processes:
        return []
    lines = ["  process      pid        now      heap       peak     CPU"]
    for p in live.processes:
        name = f"worker {p.worker}" if p.role == "worker" else p.role
        lines.append(
            f"  {name:<10s} {p.pid:>7d}  {format_size(p.pss_bytes):>9s} {format_size(p.anon_bytes):>9s}  "
            f"{format_size(p.peak_bytes):>9s}  {clock(p.cpu_s):>6s}  {bar(p.pss_bytes / budget, max(5, width - 62))}"
        )
    return lines


def _machine(live: LiveRun) -> list[str]:
    """Describe the machine that the run uses, as far as the database records it."""
    parts = []
    if live.total.machine_total_bytes:
        parts.append(
            f"memory {format_size(live.total.machine_used_bytes)} of {format_size(live.total.machine_total_bytes)}"
        )
    if live.total.cgroup_limit_bytes:
        parts.append(
            f"group {format_size(live.total.cgroup_used_bytes)} of {format_size(live.total.cgroup_limit_bytes)}"
        )
    if live.total.psi_some is not None:
        parts.append(f"waiting for memory {live.total.psi_some:g} % (all {live.total.psi_full or 0:g} %)")
    if live.total.disk_free_bytes:
        parts.append(f"disk free {format_size(live.total.disk_free_bytes)}")
    lines = ["machine  " + ", ".join(parts)] if parts else []
    if live.total.cpu_s:
        lines.append(
            f"run      CPU {clock(live.total.cpu_s)}, scratch {format_size(live.total.scratch_bytes)}, "
            f"queue {format_size(live.total.queue_bytes)}"
        )
    return lines


def _stages(live: LiveRun, width: int) -> list[str]:
    """Return a table of the stages; names get what the figures leave."""
    rows = [("in", "out", "dropped", "docs/s", "MB/s", "peak")]
    for s in live.stages:
        p = s.point
        rates = f"{s.documents_per_s:,.0f}", f"{s.bytes_per_s / 1e6:,.1f}"
        rows.append((f"{p.n_in:,}", f"{p.n_out:,}", f"{p.n_dropped:,}", *rates, format_size(p.peak_bytes)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = max(width - 2 - sum(widths) - 2 * len(widths), 12)
    names = ["stage", *(f"  {clip(s.name, room)}" for s in live.stages)]
    widest = max(map(len, names))
    figures = ("".join(f"  {cell:>{n}}" for cell, n in zip(row, widths, strict=True)) for row in rows)
    return [f"{name:<{widest}}{cells}" for name, cells in zip(names, figures, strict=True)] if live.stages else []


def _nodes(live: LiveRun) -> list[str]:
    """Return a line for each machine of a cluster, present ones first, at most twenty."""
    if not live.nodes:
        return []
    up = [n for n in live.nodes if n.is_up]
    lines = [f"nodes    {len(up)} there, {len(live.nodes) - len(up)} gone"]
    for n in [*up, *(n for n in live.nodes if not n.is_up)][:20]:
        lines.append(
            f"  {n.name[:40]:<24s} {n.busy} of {n.n_workers} workers busy, {n.n_units} partitions, "
            f"{format_size(n.used_bytes)} of "
            f"{format_size(n.budget_bytes)}, peak {format_size(n.peak_bytes)}{'' if n.is_up else ', gone'}"
        )
    return lines


def _gpus(live: LiveRun) -> list[str]:
    lines = []
    for g in live.gpus:
        busy = "" if g.busy is None else f", busy {g.busy:.0%}"
        heat = "" if g.temperature_c is None else f", {g.temperature_c:g} C"
        lines.append(
            f"gpu {g.gpu}    {format_size(g.used_bytes)} of {format_size(g.total_bytes)} "
            f"(this run {format_size(g.ours_bytes)}){busy}{heat}, {g.name}"
        )
    return lines


def sparkline(values: list[int], top_value: int) -> str:
    """Draw values as a line of blocks, relative to the largest value of the scale.

    >>> sparkline([0, 4, 8, 9], 8)
    ' ▄██'
    """
    return "".join(_BLOCKS[max(0, min(8, round(8 * v / max(top_value, 1))))] for v in values)


def bar(share: float, width: int) -> str:
    """Draw a share as a bar.

    >>> bar(0.5, 4)
    '##..'
    """
    full = max(0, min(width, round(share * width)))
    return "#" * full + "." * (width - full)
