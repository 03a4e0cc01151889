"""A plan as text: what is expected, between which bounds, and from where that is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tamis.cli.plan.machine import ClusterFigures, cluster_lines
from tamis.cli.terminal.show import count
from tamis.formats.input_files.passed_over import passed_lines
from tamis.sizes import format_size
from tamis.terminal import clock

if TYPE_CHECKING:
    from tamis.cli.plan.stages import Plan


def sizes(span: Mapping[str, float]) -> str:
    """
    >>> sizes({"low": 150e6, "expected": 200e6, "high": 300e6}), sizes({"low": 0, "expected": 0, "high": 0})
    ('about 200 MB (150 MB to 300 MB)', 'none')
    """
    if not span["high"]:
        return "none"
    return f"about {format_size(span['expected'])} ({format_size(span['low'])} to {format_size(span['high'])})"


def times(span: Mapping[str, float]) -> str:
    """
    >>> times({"low": 1.2, "expected": 90, "high": 86400 * 3})
    'about 1:30 (1.2 s to 72:00:00)'
    """
    return f"about {format_time(span['expected'])} ({format_time(span['low'])} to {format_time(span['high'])})"


def range_words(forecast: Mapping[str, Any]) -> str:
    """What the ranges are, and how often they held on this machine.

    >>> range_words({"confidence": 0.9, "held": {"peak_bytes": [45, 50], "command_seconds": [9, 10]}})
    'ranges are meant to hold nine times in ten; here they held 45 of 50 peaks and 9 of 10 times'
    >>> range_words({"confidence": 0.9, "held": {}})
    'ranges are meant to hold nine times in ten'
    """
    held = forecast.get("held") or {}
    words = "ranges are meant to hold nine times in ten"
    if not all(name in held for name in ("peak_bytes", "command_seconds")):
        return words
    peaks, seconds = held["peak_bytes"], held["command_seconds"]
    return f"{words}; here they held {peaks[0]} of {peaks[1]} peaks and {seconds[0]} of {seconds[1]} times"


def lines(p: Plan) -> list[str]:
    found: dict[str, Any] = p.forecast
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(p.kinds.items()))
    files = f"{count(p.n_files, 'file')} ({kinds}), {format_size(p.input_bytes)}, about " if p.n_files else ""
    each = " on each node" if p.nodes > 1 else ""
    needs_scratch = bool(found["scratch_bytes"]["high"])
    rows = [
        ("input", f"{files}{format_size(p.decoded_bytes)} decoded"),
        ("machine", p.machine),
        (
            "budget",
            f"{format_size(p.budget_bytes)}{each}; the smallest that works is {format_size(p.smallest_budget_bytes)}",
        ),
        (
            "partitions",
            f"about {p.n_partitions:,} of {format_size(p.block_bytes)}, on {count(p.n_workers, 'worker')}{each}",
        ),
        ("peak memory", sizes(found["peak_bytes"]) + each),
        ("scratch", sizes(found["scratch_bytes"]) + (each + _free(p.scratch_free_bytes) if needs_scratch else "")),
        ("output", sizes(found["output_bytes"]) + _where(p)),
        ("time", _time(p) + f"; {format_time(found['cpu_s'])} of CPU"),
    ]
    if p.gpu_seconds:
        rows.append(("GPU time", f"about {format_time(p.gpu_seconds)} of one GPU (starting table)"))
    if not p.fits:
        rows = rows[:3]
    made = [f"{name:<12} {value}" for name, value in rows]
    if p.cluster and p.fits:
        made += cluster_lines(ClusterFigures(**p.cluster), f"rates: from {p.basis}")
    made += ["", f"from {p.basis}" + _probed(p), range_words(found)]
    made.append(
        f"the original's guide for {p.guide['size']} of text: nodes {p.guide['nodes']}, GPUs {p.guide['gpus']}, memory {p.guide['memory']} "
        "(a starting table, not a measurement)"
    )
    made += passed_lines(p.passed_over)
    if not p.fits:
        made.append(f"the budget is too small: give --memory {math.ceil(p.smallest_budget_bytes / 1e6)}MB or more")
    if p.free_bytes is not None and p.output_bytes > p.free_bytes:
        made.append("the disk is too small for the output: make room, or use --sample")
    if p.scratch_free_bytes is not None and found["scratch_bytes"]["expected"] > p.scratch_free_bytes:
        made.append("the disk is too small for scratch: make room, or give another folder with --scratch")
    return made


def _time(p: Plan) -> str:
    """Where one driver is slower than all workers together, its time counts."""
    if p.cluster.get("limited_by") == "driver":
        return f"about {format_time(p.seconds)}, which one driver takes (the workers: {times(p.forecast['seconds'])})"
    return times(p.forecast["seconds"])


def format_time(seconds: float) -> str:
    """
    >>> format_time(4.26), format_time(75)
    ('4.3 s', '1:15')
    """
    return clock(seconds) if seconds >= 60 else f"{seconds:.1f} s"


def _where(p: Plan) -> str:
    kept = f"; {p.kept_share:.1%} of the documents" if p.kept_share is not None else ""
    return kept + (f" in {p.output}{_free(p.free_bytes)}" if p.free_bytes is not None else "")


def _free(n_bytes: int | None) -> str:
    return f"; {format_size(n_bytes)} free" if n_bytes is not None else ""


def _probed(p: Plan) -> str:
    return f" ({format_size(p.probe_bytes)}, {count(p.probe_documents, 'document')})" if p.probe_bytes else ""
