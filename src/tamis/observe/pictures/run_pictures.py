"""The pictures of a run, each from what was read of it. The only file here that knows how a run is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tamis.observe.pictures.funnel import Step, funnel_picture
from tamis.observe.pictures.gpus import gpu_picture
from tamis.observe.pictures.histogram import Bars, histogram_picture
from tamis.observe.pictures.memory import MemoryPoint, memory_picture
from tamis.observe.pictures.partitions import cell_state, map_picture
from tamis.observe.pictures.queues import queues_picture
from tamis.observe.pictures.svg import number, text
from tamis.observe.pictures.throughput import speed_picture, throughput_picture
from tamis.observe.series import Total
from tamis.observe.snapshot import Snapshot
from tamis.sizes import format_size

MAX_GPUS = 16
MAX_HISTOGRAMS = 24


def memory_of(run: Snapshot) -> str:
    points = [
        MemoryPoint(
            t.at - run.began_at, t.used_bytes, t.supervisor_bytes, t.server_bytes, t.workers, t.level, t.peak_bytes
        )
        for t in run.totals
    ]
    return memory_picture(points, run.budget_bytes, run.began_at, run.live)


def queues_of(run: Snapshot) -> str:
    free = run.last.disk_free_bytes if run.last is not None else None
    return queues_picture(_over_time(run, "queue_bytes"), _over_time(run, "scratch_bytes"), free, run.began_at)


def speed_of(run: Snapshot) -> str:
    return speed_picture(_over_time(run, "read_bytes"), run.began_at)


def _over_time(run: Snapshot, column: str) -> list[tuple[float, float]]:
    return [(t.at - run.began_at, float(getattr(t, column))) for t in run.totals]


def throughput_of(run: Snapshot) -> str:
    found: dict[str, list[tuple[float, float]]] = {p.stage: [] for p in run.stages}
    for p in run.stage_moments:
        found.setdefault(p.stage, []).append((p.at - run.began_at, float(p.n_in)))
    return throughput_picture(found, run.began_at)


def gpus_of(run: Snapshot) -> str:
    parts = []
    for gpu in sorted({p.gpu for p in run.gpus})[:MAX_GPUS]:
        mine = [p for p in run.gpus if p.gpu == gpu]
        name = f"GPU {gpu}: {mine[-1].name}"
        times = [p.at - run.began_at for p in mine]
        drawn = gpu_picture(
            name,
            list(zip(times, (float(p.used_bytes) for p in mine), strict=True)),
            list(zip(times, (float(p.ours_bytes) for p in mine), strict=True)),
            [(at, p.busy) for at, p in zip(times, mine, strict=True) if p.busy is not None],
            mine[-1].total_bytes,
            mine[-1].temperature_c,
            run.began_at,
        )
        parts.append(f"<div><h3>{text(name)}</h3>{drawn}</div>")
    return f'<div class="devices">{"".join(parts)}</div>' if parts else ""


def map_of(run: Snapshot) -> str:
    parts = ((c.first_byte, c.last_byte, c.waiting, c.running, c.committed, c.quarantined, c.split) for c in run.cells)
    return map_picture([cell_state(values) for values in parts])


def funnel_of(run: Snapshot) -> str:
    """By rule where that is known (when the run has ended), else by stage."""
    last = run.last or Total()
    ledger = run.manifest.get("ledger")
    counts = _counts(ledger) if isinstance(ledger, dict) else {}
    n_in = counts.get("records", last.documents)
    steps = [Step("records of the input", n_in, "in")]
    steps.append(Step("quarantined", counts.get("quarantined", last.quarantined), "quarantined"))
    if counts.get("not_sampled"):
        steps.append(Step("not in this sample", counts["not_sampled"], "aside"))
    order = {p.stage: p.position for p in run.stages}
    if run.drops:
        drops = sorted(run.drops, key=lambda d: (order.get(d.stage, 1 << 30), -d.documents))
        steps += [
            Step(d.reason, d.documents, "duplicates" if _removes_duplicates(d.stage) else "dropped", f"stage {d.stage}")
            for d in drops
            if d.documents
        ]
    else:
        steps += [
            Step(p.stage, p.n_dropped, "duplicates" if _removes_duplicates(p.stage) else "dropped")
            for p in run.stages
            if p.n_dropped
        ]
    steps.append(Step("kept", counts.get("written", last.written), "kept"))
    return funnel_picture([s for s in steps if s.n or s.kind in ("in", "kept")])


def _removes_duplicates(stage: str) -> bool:
    """Stages that drop what is there twice, by their names.

    >>> [_removes_duplicates(n) for n in ("remove_duplicates", "remove_exact_duplicates", "cut_duplicate_lines#2", "word_count")]
    [True, True, True, False]
    """
    return stage == "cut_units" or (stage.startswith(("remove_", "cut_")) and "duplicate" in stage)


def _counts(ledger: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for name in ("records", "quarantined", "not_sampled", "written"):
        tally = ledger.get(name)
        if isinstance(tally, list) and tally:
            found[name] = number(tally[0])
    return found


def lengths_of(run: Snapshot) -> str:
    """Lengths of the documents that came in and of those that were kept."""
    tables = _tables(run)
    sets = [
        Bars(name, t["bins"], kind)
        for which, name, kind in (("length_in", "came in", "k0"), ("length_out", "kept", "k1"))
        for t in tables
        if t.get("kind") == which
    ]
    return histogram_picture("length of documents", sets, format_size)


def scores_of(run: Snapshot) -> list[tuple[str, str]]:
    """(name, picture) of every score that was kept."""
    found = []
    for table in [t for t in _tables(run) if t.get("kind") == "score"][:MAX_HISTOGRAMS]:
        name, stage = str(table.get("name", "")), str(table.get("stage", ""))
        drawn = histogram_picture(f"score {name}", [Bars(name, table["bins"], "k0")])
        if drawn:
            found.append((name if stage in ("", name) else f"{name} ({stage})", drawn))
    return found


def _tables(run: Snapshot) -> list[dict[str, Any]]:
    kept = run.manifest.get("histograms")
    if not isinstance(kept, list):
        return []
    return [
        {**t, "bins": [b for b in t["bins"] if isinstance(b, Sequence) and len(b) == 3]}
        for t in kept[:1000]
        if isinstance(t, dict) and isinstance(t.get("bins"), list)
    ]
