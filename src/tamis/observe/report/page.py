"""The page itself: its head, and the parts in their order."""

from __future__ import annotations

import time

from tamis.observe.charts import run_charts
from tamis.observe.charts.passes import CSS as STEPPER_CSS
from tamis.observe.charts.passes import passes_chart
from tamis.observe.charts.run_charts import document_cards, peak_card, whole_run_cards
from tamis.observe.charts.style import CSS
from tamis.observe.charts.svg import text
from tamis.observe.charts.tables import alerts_table, cards, events_table, nodes_table
from tamis.observe.gpu_figures import gpu_cards
from tamis.observe.report import parts
from tamis.observe.report.decontamination import decontamination
from tamis.observe.report.facts import Facts
from tamis.observe.thumbnails import sheet

MAX_BYTES = 4_800_000  # small enough to be mailed
_CSS = """
body{max-width:76rem;margin:0 auto;padding:1.6rem clamp(.8rem,3vw,2rem)}section{margin-top:1rem}
.head p{margin:.25rem 0}#cards{margin-top:1rem}.pair{display:grid;gap:1rem;grid-template-columns:minmax(0,1fr)}
.devices{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:.4rem 1.4rem}
.devices.many{grid-template-columns:repeat(auto-fit,minmax(min(100%,17rem),1fr))}td .bar{width:9rem;margin-top:.45rem}
td p{margin:0 0 .3rem}
@media (min-width:52rem){.pair{grid-template-columns:repeat(2,minmax(0,1fr))}}@media (max-width:40rem){.cards{
grid-template-columns:repeat(2,minmax(0,1fr))}}
@media print{body{background:#fff}section{break-inside:avoid}}
"""


def render(facts: Facts) -> str:
    run = facts.run
    blocks = [
        _section("Passes", passes_chart(run.record)),
        _section("Documents", run_charts.funnel_of(run) + parts.documents(facts)),
        _section("Dropped", parts.dropped(facts)),
        _section("Decontamination", decontamination(facts.run_dir)),
        _section("Images", facts.thumbnails),
        _section("Memory against the budget", run_charts.memory_of(run)),
        _pair(
            _section("Partition map", run_charts.map_of(run)),
            _section("Documents per second, by stage", run_charts.throughput_of(run)),
            _section("Input per second", run_charts.speed_of(run)),
            _section("Queue and scratch", run_charts.queues_of(run)),
        ),
        _section("Nodes", nodes_table(run.nodes)),
        _section("GPUs", run_charts.gpus_of(run)),
        _section("Length of documents", run_charts.lengths_of(run)),
        _section("Scores", parts.scores(facts)),
        _section("Stages", parts.stages(facts)),
        _section("Predicted and measured", parts.prediction(facts)),
        _section("Quarantine", parts.quarantine(facts)),
        _section("Alerts", alerts_table(run.alerts)),
        _section("Settings and their reasons", parts.settings(facts)),
        _section("What the supervisor did", parts.counters(facts)),
        _section("Last events", events_table(run.events)),
        _section("Environment", parts.environment()),
    ]
    body = "".join([_head(facts), *_bounded(blocks)])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1">'
        f"<title>Tamis: {text(facts.run_dir.resolve().parent.name)}</title>"
        f"<style>{CSS}{STEPPER_CSS}{_CSS}{sheet.CSS}</style></head><body>{body}</body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{text(title)}</h2>{body}</section>" if body else ""


def _pair(*sections: str) -> str:
    return f'<div class="pair">{"".join(sections)}</div>' if any(sections) else ""


def _bounded(sections: list[str]) -> list[str]:
    """Drop the largest parts until the rest can be mailed."""
    sections = list(sections)
    while sum(len(part.encode("utf-8", "backslashreplace")) for part in sections) > MAX_BYTES:
        largest = max(range(len(sections)), key=lambda i: len(sections[i]))
        sections[largest] = (
            '<section><p class="dim">A part is left out here: it alone would make this page too large.</p></section>'
        )
    return sections


def _head(facts: Facts) -> str:
    run, manifest = facts.run, facts.run.manifest
    status, code = ("not finished", None) if manifest is None else (manifest.status, manifest.exit_code)
    good = status in ("finished", "sampled") and code == 0
    path = facts.run_dir.resolve().parent
    lines = [f"<h1>{text(run.name or path.name)}</h1>"]
    shown = status if good or code is None else f"{status}, exit code {code}"
    lines.append(f'<p class="{"good" if good else "bad"}">{text(shown, 200)}</p>')
    if run.message:
        lines.append(f'<p class="bad">{text(run.message, 2000)}</p>')
    lines += [f'<p class="bad">{text(problem, 600)}</p>' for problem in facts.problems]
    lines += [f'<p class="bad">{text(remark, 600)}</p>' for remark in (manifest.remarks if manifest else [])]
    lines.append(
        f'<p class="dim"><code>{text(path, 400)}</code> · run {text(run.run_id or "-")} · written '
        f"{time.strftime('%Y-%m-%d %H:%M:%S')}</p>"
    )
    return f'<div class="head">{"".join(lines)}</div><div id="cards">{_cards(facts)}</div>'


def _cards(facts: Facts) -> str:
    run, ledger = facts.run, facts.ledger
    entries = document_cards(run.counts) if run.counts is not None else []
    if ledger is not None:
        entries += whole_run_cards(run.record)
    if run.budget_bytes:
        entries.append(peak_card(run))
    return cards([*entries, *gpu_cards(run.about)])
