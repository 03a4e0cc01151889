"""The page itself: its parts in their order, styles, and the one script, which the page does without."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from tamis.observe.charts import run_charts
from tamis.observe.charts.passes import CSS as STEPPER_CSS
from tamis.observe.charts.passes import passes_chart
from tamis.observe.charts.style import CSS
from tamis.observe.charts.svg import text
from tamis.observe.charts.tables import alerts_table, events_table, nodes_table
from tamis.observe.report import documents, parts, summary
from tamis.observe.report.choice import choice
from tamis.observe.report.decontamination import decontamination
from tamis.observe.report.facts import Facts
from tamis.observe.report.passages import passages
from tamis.observe.report.rules import rules_of_run, rules_section
from tamis.observe.snapshot import Snapshot
from tamis.observe.thumbnails import sheet
from tamis.stores.run_locations import output_of_run_dir

MAX_BYTES = 2_000_000  # small enough to be mailed
_ROOM = 60_000  # of that, for what is not a section


def render(facts: Facts) -> str:
    run, rules = facts.run, rules_of_run(facts)
    sections = [
        ("flow", "Flow", summary.flow(facts, rules) + _folded("The ledger: every stage", parts.documents(facts))),
        ("rules", "Rules", rules_section(facts, rules)),
        ("duplicates", "Duplicates", documents.duplicates(facts)),
        ("passages", "Repeated passages", passages(facts)),
        ("decontamination", "Decontamination", decontamination(facts.run_dir)),
        ("choice", "Buckets and mix", choice(facts.run_dir, facts.ledger)),
        ("composition", "Composition", documents.composition(facts)),
        ("samples", "Samples", documents.samples(facts)),
        ("images", "Images", facts.thumbnails),
        ("run", "Run", _run(facts)),
        ("quarantine", "Quarantine", parts.quarantine(facts)),
        ("alerts", "Alerts", alerts_table(run.alerts)),
        ("settings", "Settings and environment", _settings(facts)),
    ]
    present = [(anchor, title, body) for anchor, title, body in _bounded(sections) if body]
    contents = "".join(f'<li><a href="#{anchor}">{text(title)}</a></li>' for anchor, title, _ in present)
    shown = "".join(f'<section id="{a}"><h2>{text(title)}</h2>{body}</section>' for a, title, body in present)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        f"<title>Tamis: {text(Path(output_of_run_dir(facts.run_dir.resolve())).name)}</title>"
        f"<style>{CSS}{STEPPER_CSS}{_file('page.css')}{sheet.CSS}</style></head><body>"
        f'<a class="skip" href="#main">to the report</a><nav aria-label="contents"><ul>{contents}</ul></nav>'
        f'<main id="main" tabindex="-1">{summary.head(facts, rules)}{shown}</main>'
        f"<script>{_file('page.js')}</script></body></html>\n"
    )


@cache
def policy() -> str:
    """Return the content security policy of the page: styles, its own images, and exactly its own script."""
    digest = base64.b64encode(hashlib.sha256(_file("page.js").encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"


@cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _part(title: str, body: str, level: int = 3) -> str:
    return f"<div><h{level}>{text(title)}</h{level}>{body}</div>" if body else ""


def _pair(*found: str) -> str:
    return f'<div class="pair">{"".join(found)}</div>' if any(found) else ""


def _folded(title: str, body: str) -> str:
    return f'<details class="screen"><summary>{text(title)}</summary>{body}</details>' if body else ""


def _run(facts: Facts) -> str:
    run = facts.run
    return "".join(
        [
            _part("Passes", passes_chart(run.record)),
            _part("What held this run back", summary.held_back(facts)),
            _part("Memory against the budget", _memory(run)),
            _pair(
                _part("Documents per second, by stage", run_charts.throughput_of(run, with_table=True)),
                _part("Input per second", run_charts.speed_of(run, with_table=True)),
                _part("Queue and scratch", run_charts.queues_of(run, with_table=True)),
            ),
            _part("Partition map", run_charts.map_of(run, with_table=True)),
            _part("Nodes", nodes_table(run.nodes)),
            _part("GPUs", run_charts.gpus_of(run, with_table=True)),
            _folded("Stages", parts.stages(facts)),
            _folded("Predicted and measured", parts.prediction(facts)),
            _folded("What the supervisor did", parts.counters(facts)),
            _folded("Last events", events_table(run.events)),
        ]
    )


def _memory(run: Snapshot) -> str:
    """Return the memory of all passes, and of the newest one by process."""
    whole, newest = run_charts.memory_of_passes(run, with_table=True), run_charts.memory_of(run, with_table=True)
    return f'{whole}<p class="dim">The newest pass by process:</p>{newest}' if whole and newest else whole or newest


def _settings(facts: Facts) -> str:
    scores = _folded("Scores that no rule compares", parts.other_scores(facts))
    return (
        _folded("Settings and their reasons", parts.settings(facts))
        + scores
        + _folded("Environment", parts.environment())
    )


def _bounded(sections: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Drop the largest parts until the rest can be mailed."""
    sections = list(sections)
    while sum(len(body.encode("utf-8", "backslashreplace")) for _, _, body in sections) > MAX_BYTES - _ROOM:
        largest = max(range(len(sections)), key=lambda i: len(sections[i][2]))
        anchor, title, _ = sections[largest]
        note = '<p class="dim">This part is left out: it alone would make the page too large.</p>'
        sections[largest] = (anchor, title, note)
    return sections
