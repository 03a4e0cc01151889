"""The fragments of the page, which change one by one: HTML by element id.

Everything from the run is escaped.
"""

from __future__ import annotations

from pathlib import Path

from tamis.engine.run_record import RunCounts
from tamis.observe.charts import run_charts
from tamis.observe.charts.passes import passes_chart, progress_text
from tamis.observe.charts.svg import count_text, number, seconds_text, text
from tamis.observe.charts.tables import alerts_table, bar, cards, events_table, nodes_table, settings_table, table
from tamis.observe.gpu_figures import gpu_cards
from tamis.observe.points import LEVELS, AlertPoint, DropPoint
from tamis.observe.records import excerpt
from tamis.observe.snapshot import Snapshot
from tamis.sizes import format_size
from tamis.stores.run_locations import output_of_run_dir
from tamis.terminal import time_of_day

_N_ROWS = 100
_N_DROPPED = 12
_EXCERPT_CHARS = 160


def fragments(run: Snapshot) -> dict[str, str]:
    """Return the fragments of the dashboard by section; the section of an empty text is hidden."""
    return {
        "head": _head(run),
        "notices": _notices(run),
        "cards": _cards(run),
        "progress": _progress(run),
        "passes": passes_chart(run.record),
        "all-memory": run_charts.memory_of_passes(run),
        "memory": run_charts.memory_of(run),
        "map": run_charts.map_of(run),
        "funnel": run_charts.funnel_of(run),
        "throughput": run_charts.throughput_of(run),
        "speed": run_charts.speed_of(run),
        "queues": run_charts.queues_of(run),
        "gpus": run_charts.gpus_of(run),
        "nodes": nodes_table(run.nodes),
        "stages": _stages(run),
        "rules": _rules(run),
        "dropped": _dropped(run),
        "workers": _workers(run),
        "alerts": alerts_table(reversed(run.alerts)),
        "events": events_table(reversed(run.events)),
        "lengths": run_charts.lengths_of(run),
        "machine": _machine(run),
        "settings": settings_table(run.settings),
        "foot": _foot(run),
    }


def _head(run: Snapshot) -> str:
    status = run.status if not run.exit_code else f"{run.status}, exit code {run.exit_code}"
    kind = "good" if run.live or run.good else "bad" if run.status != "starting" else "dim"
    title = run.name or Path(output_of_run_dir(run.run_dir)).name
    sentence = f'<span class="badge {kind}">{text(status)}</span>'
    if run.live and run.record is not None and len(run.record.passes) > 1 and run.record.current is not None:
        sentence += f'<span class="badge">{text(run.record.current.text)}</span>'
    since = f"{seconds_text(round(run.seconds))}" if run.seconds else ""
    return f"<h1>{text(title)}</h1><p>{sentence}<span>{text(since)}</span></p>"


def _notices(run: Snapshot) -> str:
    rows = [f'<p class="notice bad">{text(problem, 600)}</p>' for problem in run.problems[:10]]
    if run.message:
        rows.append(f'<p class="notice bad">{text(run.message, 2000)}</p>')
    if run.status == "stopped":
        rows.append(
            '<p class="notice">No sample for a while and no result: the run was interrupted, or its machine is busy. '
            "The same command again resumes from what is committed.</p>"
        )
    if run.live:
        rows += [
            f'<p class="notice {"bad" if a.level == "critical" else ""}"><b>{text(a.rule)}</b> {text(a.text, 600)}</p>'
            for a in active(run.alerts)
        ]
    return "".join(rows)


def active(alerts: list[AlertPoint]) -> list[AlertPoint]:
    """Return the newest alert of each rule, except those that have been resolved."""
    newest = {a.rule: a for a in alerts}
    return [a for a in newest.values() if a.level != "resolved"]


def _cards(run: Snapshot) -> str:
    last = run.last
    if last is None:
        return ""
    entries = run_charts.document_cards(
        run.counts or RunCounts(), f"{count_text(run.rate('documents'))}/s" if run.live else ""
    )
    if run.live:
        speed = run.rate("read_bytes")
        entries.append(("speed", f"{format_size(speed)}/s", "of input"))
    else:
        entries += run_charts.whole_run_cards(run.record, run.about)
    budget = max(run.budget_bytes, 1)
    if run.live:
        share = f"{last.used_bytes / budget:.0%} of {format_size(budget)}"
        entries.append(("memory", format_size(last.used_bytes), share))
    entries.append(run_charts.peak_card(run))
    if run.live:
        entries.append(("pressure", *LEVELS[min(max(last.level, 0), 4)]))
        if last.cpu_s:
            entries.append(("cores busy", f"{run.rate('cpu_s'):.1f}", f"{len(run.processes)} processes"))
    return cards([*entries, *gpu_cards(run.about)])


def _progress(run: Snapshot) -> str:
    last, record = run.last, run.record
    if record is not None and len(record.passes) > 1:
        return "" if record.counts is not None else _bar_of(record.share, "all passes", progress_text(record))
    if last is None:
        return "<p>Waiting for the first sample of the run.</p>" if not run.manifest else ""
    if run.manifest:
        return ""
    whole = float(run.about.input_bytes or last.read_bytes + last.left_bytes)
    if whole <= 0:
        return ""
    share = min(max(1 - last.left_bytes / whole, 0.0), 1.0)
    left = f", {seconds_text(round(run.left_s))} left" if run.live and run.left_s and last.left_bytes else ""
    return _bar_of(share, "input read", f"{share:.1%} of {format_size(whole)}{left}")


def _bar_of(share: float, label: str, caption: str) -> str:
    return (
        f'<div role="progressbar" aria-label="{text(label)}" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{share * 100:.0f}">'
        f"{bar(share, 'k2')}</div><p>{text(caption)}</p>"
    )


def _stages(run: Snapshot) -> str:
    if not run.stages:
        return ""
    total_s = sum(number(p.seconds) for p in run.stages) or 1.0
    rows = []
    for p in run.stages[:_N_ROWS]:
        mine = [m for m in run.stage_moments if m.stage == p.stage]
        first = next((m for m in reversed(mine) if p.at - m.at >= 5.0), mine[0] if mine else p)
        now = (p.n_in - first.n_in) / (p.at - first.at) if run.live and p.at > first.at else 0.0
        inside = f"{format_size(p.in_bytes / p.seconds)}/s" if p.seconds > 0 and p.in_bytes else "-"
        rows.append(
            [
                text(p.stage, 60),
                f"{p.n_in:,}",
                f"{p.n_out:,}",
                f"{p.n_dropped:,}",
                f"{count_text(max(now, 0.0))}/s" if run.live else "-",
                inside,
                f"{p.seconds / total_s:.0%}",
                format_size(p.peak_bytes) if p.peak_bytes else "-",
            ]
        )
    columns = ["stage", "in", "out", "dropped", "documents", "while in it", "time", "peak"]
    return table(columns, rows, range(1, 8))


def _rules(run: Snapshot) -> str:
    """Return what each rule dropped of the documents that reached its stage, the highest rate first."""
    n_in = {p.stage: p.n_in for p in run.stages}
    rated = sorted(((d.documents / max(n_in.get(d.stage, 0), d.documents, 1), d) for d in run.drops), key=_by_rate)
    rows = [
        [
            text(d.reason, 60) + (f'<br/><span class="dim">{text(d.stage, 60)}</span>' if d.stage != d.reason else ""),
            f"{d.documents:,}",
            f"{rate:.1%}",
            bar(rate, "k4" if d.stage in run.duplicate_stages else "k3"),
        ]
        for rate, d in rated[:_N_ROWS]
    ]
    return table(["rule", "dropped", "of those it saw", ""], rows, (1, 2)) if rows else ""


def _by_rate(rated: tuple[float, DropPoint]) -> tuple[float, str, str]:
    return -rated[0], rated[1].stage, rated[1].reason


def _dropped(run: Snapshot) -> str:
    """Return the documents that were dropped last, with the beginning of each text where it can be read at once."""
    rows = []
    for d in reversed(run.dropped[-_N_DROPPED:]):
        name = d.document or f"{d.path}:{d.offset}"
        begins = excerpt(d.path, d.offset)[:_EXCERPT_CHARS] if run.reads_texts else ""
        shown = f'<br/><span class="dim">{text(begins, _EXCERPT_CHARS)}</span>' if begins else ""
        rows.append([time_of_day(d.at), text(d.reason, 60), f"<code>{text(name, 120)}</code>{shown}"])
    return table(["time", "rule", "document"], rows) if rows else ""


def _workers(run: Snapshot) -> str:
    budget = max(run.budget_bytes, 1)
    rows = []
    decoded = {u.worker: u.decoded_bytes for u in run.units}
    for p in run.processes[:_N_ROWS]:
        name = f"worker {p.worker}" if p.role == "worker" else p.role
        partition = format_size(decoded[p.worker]) if p.role == "worker" and p.worker in decoded else "-"
        memory = format_size(p.pss_bytes), bar(p.pss_bytes / budget), format_size(p.peak_bytes)
        rows.append([text(name), str(p.pid), *memory, seconds_text(round(p.cpu_s, 1)), partition])
    columns = ["process", "pid", "memory", "of the budget", "peak", "CPU", "last partition"]
    return table(columns, rows, (1, 2, 4, 5, 6)) if rows else ""


def _machine(run: Snapshot) -> str:
    last = run.last
    if last is None:
        return ""
    rows = []
    if last.machine_total_bytes:
        used, whole = format_size(last.machine_used_bytes), format_size(last.machine_total_bytes)
        rows.append(["memory of the machine", f"{used} of {whole} in use"])
    if last.cgroup_limit_bytes:
        used, whole = format_size(last.cgroup_used_bytes), format_size(last.cgroup_limit_bytes)
        rows.append(["control group", f"{used} of {whole}"])
    if last.psi_some is not None:
        full = f", everybody {last.psi_full:.1f} %" if last.psi_full is not None else ""
        rows.append(["waiting for memory (last 10 s)", f"some tasks {last.psi_some:.1f} %{full}"])
    if last.disk_free_bytes:
        rows.append(["free on the disk", format_size(last.disk_free_bytes)])
    if last.cpu_s:
        rows.append(["CPU time so far", seconds_text(round(last.cpu_s, 1))])
    return table(["", ""], [[text(a), text(b)] for a, b in rows], (1,)) if rows else ""


def _foot(run: Snapshot) -> str:
    return f"<p>{text(run.run_dir.absolute(), 400)}{f' · run {text(run.run_id)}' if run.run_id else ''}</p>"
