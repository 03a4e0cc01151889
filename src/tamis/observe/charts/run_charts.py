"""The charts of a run, each from what was read of it. The only file here that knows how a run is recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from tamis.engine.run_record import PassRecord, RunCounts, RunRecord
from tamis.engine.schema import RunFacts
from tamis.observe.charts.funnel import FunnelStep, funnel_chart
from tamis.observe.charts.histogram import Bars, histogram_chart
from tamis.observe.charts.lines import MAX_LINES, Line, lines_chart, rates
from tamis.observe.charts.memory import memory_chart, pass_memory_chart
from tamis.observe.charts.partitions import STATES, map_chart
from tamis.observe.charts.svg import count_text, number, picked, seconds_text, share_text, text
from tamis.observe.charts.tables import folded_table
from tamis.observe.points import LEVELS, Cell, DropPoint, GpuPoint, Total
from tamis.observe.snapshot import Snapshot
from tamis.sizes import format_size, format_speed

MAX_GPUS = 16
MAX_HISTOGRAMS = 24
SIMILARITY = "similarity"  # the scores of stages that remove duplicates
_TABLE_ROWS = 12
_MAX_MARKS = 4  # limits of one score


def memory_of(run: Snapshot, with_table: bool = False) -> str:
    """Draw the memory of processes over time, of a run of several passes in the newest one."""
    points = [t._replace(at=t.at - run.began_at) for t in run.totals]
    of_what = "of this pass" if len(_measured_passes(run)) > 1 else ""
    chart = memory_chart(points, run.budget_bytes, run.began_at, run.live, of_what)
    if not chart or not with_table:
        return chart
    rows = [
        [
            seconds_text(round(p.at, 1)),
            format_size(number(p.used_bytes)),
            format_size(number(p.peak_bytes)),
            f"{number(p.used_bytes) / max(run.budget_bytes, 1):.0%}",
            LEVELS[min(max(p.level, 0), len(LEVELS) - 1)][0],
        ]
        for p in (points[i] for i in picked(len(points), _TABLE_ROWS))
    ]
    return chart + folded_table("memory", ["time", "in use", "peak since", "of the budget", "level"], rows, (1, 2, 3))


def _measured_passes(run: Snapshot) -> list[PassRecord]:
    return [p for p in run.record.passes if p.memory] if run.record is not None else []


def memory_of_passes(run: Snapshot, with_table: bool = False) -> str:
    """Draw the memory of all passes, one after another; nothing for a run of one pass."""
    passes = _measured_passes(run)
    if len(passes) < 2:
        return ""
    chart = pass_memory_chart([(p.text, [(m.at_s, m.peak_bytes) for m in p.memory]) for p in passes], run.budget_bytes)
    rows = [
        [
            text(p.text),
            seconds_text(round(p.seconds, 1)),
            format_size(peak := max(m.peak_bytes for m in p.memory)),
            f"{peak / max(run.budget_bytes, 1):.0%}",
        ]
        for p in passes
    ]
    return chart + (
        folded_table("memory of passes", ["pass", "time", "peak", "of the budget"], rows, (1, 2, 3))
        if with_table
        else ""
    )


def whole_run_cards(record: RunRecord | None, about: RunFacts | None = None) -> list[tuple[str, str, str]]:
    """Return the cards with the time and the speed of a whole run, all passes and sessions.

    `about`: of a run without GPUs, whose first output is noted with the time.
    """
    if record is None or not record.seconds:
        return []
    n = len(record.sessions)
    sessions = f"work time of {n} sessions" if n > 1 else "work time"
    first_s = about.first_output_s if about is not None and about.gpu is None and len(record.passes) < 2 else None
    if first_s is not None and 0 <= first_s <= record.seconds:
        sessions += f", first output after {first_s:,.1f} s"
    return [
        ("time", f"{record.seconds:,.1f} s", sessions),
        ("speed", format_speed(record.mb_per_s), f"{format_size(record.read_bytes)} of input"),
    ]


def peak_card(run: Snapshot) -> tuple[str, str, str]:
    """Return the card with the peak memory of a whole run."""
    share = f"{run.peak_bytes / max(run.budget_bytes, 1):.0%} of {format_size(run.budget_bytes)}"
    return "peak memory", format_size(run.peak_bytes), share


def document_cards(counts: RunCounts, rate: str = "") -> list[tuple[str, str, str]]:
    """Return the cards of documents, whose figures add up: all but the first are parts of it. `rate`: now."""
    n = counts.records + counts.added
    dropped = _share(counts.dropped, n)
    if counts.duplicates is not None:
        dropped += f", of which {counts.duplicates:,} duplicates"
    entries = [
        ("documents", f"{counts.records:,}", rate),
        ("kept", f"{counts.written:,}", _share(counts.written, n)),
        ("dropped", f"{counts.dropped:,}", dropped),
        ("quarantined", f"{counts.quarantined:,}", _share(counts.quarantined, n)),
    ]
    if counts.added:
        entries.insert(1, ("made by stages", f"{counts.added:,}", "less those that they replace"))
    if counts.not_sampled:
        entries.append(("not in this sample", f"{counts.not_sampled:,}", _share(counts.not_sampled, n)))
    if counts.in_flight:
        entries.append(("in flight", f"{counts.in_flight:,}", "read, not yet written or dropped"))
    return entries


def _share(n: float, whole: float) -> str:
    return share_text(n, whole) if whole else ""


def queues_of(run: Snapshot, with_table: bool = False) -> str:
    """Draw the bytes that wait: decoded blocks in the queue and everything in scratch."""
    free = number(run.last.disk_free_bytes) if run.last is not None else 0.0
    queue = Line("queue", _over_time(run, run.totals, "queue_bytes"), area=True, kind="k1")
    scratch = Line("scratch", _over_time(run, run.totals, "scratch_bytes"), kind="k5")
    if not any(value for line in (queue, scratch) for _, value in line.points):
        return ""  # nothing ever waited
    note = f"{format_size(free)} are free on the disk." if free else ""
    label = "bytes in the queue and in scratch"
    return lines_chart(label, [queue, scratch], format_size, run.began_at, note=note, height=110, with_table=with_table)


def speed_of(run: Snapshot, with_table: bool = False) -> str:
    lines = [Line("input read", rates(_over_time(run, run.totals, "read_bytes")), area=True)]
    return lines_chart(
        "bytes of input per second",
        lines,
        lambda v: f"{format_size(v)}/s",
        run.began_at,
        height=110,
        with_table=with_table,
    )


def _over_time(run: Snapshot, points: Sequence[Total | GpuPoint], column: str) -> list[tuple[float, float]]:
    """Return (seconds, value) of the known values."""
    series = ((p.at - run.began_at, getattr(p, column)) for p in points)
    return [(at, float(value)) for at, value in series if value is not None]


def throughput_of(run: Snapshot, with_table: bool = False) -> str:
    """Draw the documents per second that each stage takes in."""
    series: dict[str, list[tuple[float, float]]] = {p.stage: [] for p in run.stages}
    for p in run.stage_moments:
        series.setdefault(p.stage, []).append((p.at - run.began_at, float(p.n_in)))
    lines = [Line(name, rates(counts)) for name, counts in series.items()]
    note = ""
    if len(lines) > MAX_LINES:
        slow = sorted(lines, key=lambda line: sum(number(v) for _, v in line.points))[: MAX_LINES - 1]
        note = f"The {len(slow) + 1} stages that take in fewest of {len(lines)}; the table of stages has all."
        chosen = [lines[0], *slow]
        lines = [line for line in lines if any(line is c for c in chosen)]
    label = "documents per second by stage"
    return lines_chart(label, lines, lambda v: f"{count_text(v)}/s", run.began_at, note=note, with_table=with_table)


def gpus_of(run: Snapshot, with_table: bool = False) -> str:
    """Draw the memory of each device against its size, and the share of time it was busy."""
    parts = []
    for gpu in sorted({p.gpu for p in run.gpus})[:MAX_GPUS]:
        mine = [p for p in run.gpus if p.gpu == gpu]
        name, last = f"GPU {gpu}: {mine[-1].name}", mine[-1]
        memory = [
            Line("in use", _over_time(run, mine, "used_bytes"), area=True, kind="k1"),
            Line("of this run", _over_time(run, mine, "ours_bytes"), kind="k3"),
        ]
        size = number(last.total_bytes) or None
        drawn = lines_chart(
            f"memory of {name}", memory, format_size, run.began_at, size, height=110, with_table=with_table
        )
        busy = [(at, min(number(share), 1.0)) for at, share in _over_time(run, mine, "busy")]
        work, heat = [Line("busy", busy, area=True, kind="k2")], number(last.temperature_c)
        note = f"{heat:.0f} °C" if heat else ""
        label = f"busy share of {name}"
        drawn += lines_chart(
            label, work, lambda v: f"{v:.0%}", run.began_at, 1.0, note=note, height=80, with_table=with_table
        )
        parts.append(f"<div><h3>{text(name)}</h3>{drawn}</div>")
    return f'<div class="devices">{"".join(parts)}</div>' if parts else ""


def map_of(run: Snapshot, with_table: bool = False) -> str:
    """Draw the partition map; counts below zero, which no run has, count as zero."""
    cells = [c if min(c) >= 0 else Cell(*(max(n, 0) for n in c)) for c in run.cells]
    chart = map_chart(cells)
    if not chart or not with_table:
        return chart
    rows = [[name, format_size(sum(getattr(c, name) for c in cells))] for name in (*STATES, "quarantined")]
    return chart + folded_table("partition map", ["input", "bytes"], rows, (1,))


def funnel_of(run: Snapshot, link: Callable[[str, str], str] = lambda stage, rule: "") -> str:
    """By rule where that is known (when the run has ended), else by stage.

    `link`: returns the anchor of a rule, if it has one.
    """
    counts = run.counts or RunCounts()
    steps = [FunnelStep("records of the input", counts.records, "in")]
    steps.append(FunnelStep("made by stages", max(counts.added, 0), "made"))
    steps.append(FunnelStep("quarantined", counts.quarantined, "quarantined"))
    steps.append(FunnelStep("not in this sample", counts.not_sampled, "aside"))
    order, removing = {p.stage: p.position for p in run.stages}, run.duplicate_stages
    if run.drops:
        drops = sorted(run.drops, key=lambda d: (order.get(d.stage, 1 << 30), -d.documents))
        steps += [
            FunnelStep(
                _name_of(d, run),
                d.documents,
                "duplicates" if d.stage in removing else "dropped",
                f"stage {d.stage}",
                link(d.stage, d.reason),
            )
            for d in drops
        ]
    else:
        steps += [
            FunnelStep(p.stage, p.n_dropped, "duplicates" if p.stage in removing else "dropped") for p in run.stages
        ]
    steps += [FunnelStep("in flight", counts.in_flight, "aside"), FunnelStep("kept", counts.written, "kept")]
    return funnel_chart([s for s in steps if s.n > 0 or s.kind in ("in", "kept")])


def _name_of(drop: DropPoint, run: Snapshot) -> str:
    """Return the name of a rule; of one that several stages have, with its stage, which is the name of a deduplication.

    >>> from pathlib import Path
    >>> run = Snapshot(Path(), drops=[DropPoint("exact", "duplicate"), DropPoint("fuzzy", "duplicate")])
    >>> _name_of(run.drops[0], run)
    'duplicate (exact)'
    """
    if sum(d.reason == drop.reason for d in run.drops) < 2:
        return drop.reason
    return drop.stage if drop.stage in run.duplicate_stages else f"{drop.reason} ({drop.stage})"


def bytes_funnel_of(run: Snapshot, link: Callable[[str, str], str]) -> str:
    """Draw where the bytes of the input went, by rule; nothing where they are not known."""
    dropped = {(d.stage, d.reason): d.bytes for d in run.drops}
    kept = (run.counts or RunCounts()).read_bytes - sum(dropped.values())
    return _amounts_funnel(run, link, dropped, kept, "bytes")


def tokens_funnel_of(
    run: Snapshot, link: Callable[[str, str], str], dropped: Mapping[tuple[str, str], int], kept: int
) -> str:
    """Draw where the tokens of the input went. `dropped`: by stage and rule."""
    return _amounts_funnel(run, link, dropped, kept, "tokens")


def _amounts_funnel(
    run: Snapshot,
    link: Callable[[str, str], str],
    dropped: Mapping[tuple[str, str], int],
    kept: int,
    unit: Literal["bytes", "tokens"],
) -> str:
    total, removing = sum(dropped.values()), run.duplicate_stages
    if not total or kept < 0:
        return ""
    order = {p.stage: p.position for p in run.stages}
    drops = sorted(run.drops, key=lambda d: (order.get(d.stage, 1 << 30), -d.documents))
    steps = [FunnelStep(f"{unit} of the input", kept + total, "in")]
    steps += [
        FunnelStep(
            _name_of(d, run),
            n,
            "duplicates" if d.stage in removing else "dropped",
            f"stage {d.stage}",
            link(d.stage, d.reason),
        )
        for d in drops
        if (n := dropped.get((d.stage, d.reason), 0))
    ]
    steps.append(FunnelStep("kept, as they were read", kept, "kept"))
    return funnel_chart(steps, format_size, "") if unit == "bytes" else funnel_chart(steps, unit="tokens")


def similarities_of(run: Snapshot) -> str:
    """Draw how similar removed duplicates are to the documents that were kept for them."""
    sets = [
        Bars(str(t.get("stage", "")), t["bins"], f"k{4 + i % 3}")
        for i, t in enumerate(t for t in _score_tables(run) if t.get("name") == SIMILARITY)
        if [b[:2] for b in t["bins"]] != [[1.0, 1.25]]  # all are equal
    ]
    return histogram_chart("similarity of duplicates", sets, with_table=True)


def score_table(run: Snapshot, stage: str, score: str) -> dict[str, Any] | None:
    """Return the recorded distribution of the scores of one rule."""
    return next((t for t in _score_tables(run) if (t.get("stage"), t.get("name")) == (stage, score)), None)


def lengths_of(run: Snapshot) -> str:
    """Draw the lengths of documents read and of those kept."""
    tables = _tables(run)
    sets = [
        Bars(name, t["bins"], kind)
        for which, name, kind in (("length_in", "came in", "k0"), ("length_out", "kept", "k1"))
        for t in tables
        if t.get("kind") == which
    ]
    return histogram_chart("length of documents", sets, format_size, with_table=True)


def scores_of(run: Snapshot, leave_out: Collection[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """Return (name, chart) of every recorded score, with the limits of the rules on it.

    `leave_out`: stage and name of scores that are shown elsewhere.
    """
    charts = []
    for table in _other_tables(run, leave_out)[:MAX_HISTOGRAMS]:
        name, stage = str(table.get("name", "")), str(table.get("stage", ""))
        limits = table.get("limits")
        marks = [x for x in limits[:_MAX_MARKS] if type(x) in (int, float)] if isinstance(limits, list) else []
        drawn = histogram_chart(f"score {name}", [Bars(name, table["bins"], "k0")], marks=marks, with_table=True)
        if drawn:
            charts.append((name if stage in ("", name) else f"{name} ({stage})", drawn))
    return charts


def count_hidden_scores(run: Snapshot, leave_out: Collection[tuple[str, str]] = ()) -> int:
    """Return the number of recorded scores beyond those that `scores_of` draws."""
    return max(0, len(_other_tables(run, leave_out)) - MAX_HISTOGRAMS)


def _other_tables(run: Snapshot, leave_out: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    shown = set(leave_out)
    return [t for t in _score_tables(run) if (str(t.get("stage", "")), str(t.get("name", ""))) not in shown]


def _score_tables(run: Snapshot) -> list[dict[str, Any]]:
    return [table for table in _tables(run) if table.get("kind") == "score"]


def _tables(run: Snapshot) -> list[dict[str, Any]]:
    return [
        {**t, "bins": [b for b in t["bins"] if isinstance(b, Sequence) and len(b) == 3]}
        for t in (run.manifest.histograms if run.manifest is not None else [])[:1000]
        if isinstance(t.get("bins"), list)
    ]
