"""diff.html: two runs side by side, as one self-contained page: verdicts that changed, flow, rules, figures, settings.

Everything comes from the run directories and `observe.diff.compare`, and is treated as hostile text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tamis import files
from tamis.hints import command
from tamis.observe.charts import run_charts
from tamis.observe.charts.passes import CSS as STEPPER_CSS
from tamis.observe.charts.passes import passes_chart
from tamis.observe.charts.style import CSS
from tamis.observe.charts.svg import text
from tamis.observe.charts.tables import bar, cards, table
from tamis.observe.diff import Change, RunDiff
from tamis.observe.gpu_figures import shown
from tamis.observe.report.facts import Facts, gather
from tamis.sizes import format_size
from tamis.stores.run_locations import output_of_run_dir

FILE = "diff.html"
KEPT = "kept"  # the state of a document that no rule dropped (observe/document_status.py)
_MAX_ROWS = 200
_N_SHOWN = 20  # changes of verdicts that are not folded
_CSS = """
body{max-width:90rem;margin:0 auto;padding:1.6rem clamp(.8rem,3vw,2rem)}section{margin-top:1rem}
main>.pair{display:grid;gap:1rem;grid-template-columns:minmax(0,1fr)}td .bar{width:9rem;margin-top:.45rem}
.head p{margin:.25rem 0}td>code{white-space:nowrap}
@media (max-width:40rem){td:has(>.bar),th:empty{display:none}}
@media (min-width:52rem){main>.pair{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media print{body{background:#fff}section{break-inside:avoid}}
"""


def write_comparison(first: str | os.PathLike[str], second: str | os.PathLike[str], diff: RunDiff) -> Path:
    """Write diff.html into the run directory of the second run, whole or not at all; return its path."""
    path = Path(second) / FILE
    files.write_text(path, render(gather(Path(first)), gather(Path(second)), diff), files.OWN, sync=False)
    return path


def render(first: Facts, second: Facts, diff: RunDiff) -> str:
    """Return the page."""
    both = (first, second)
    names = [text(output_of_run_dir(facts.run_dir.resolve()), 300) for facts in both]
    parts = [
        f'<div class="head"><h1>Two runs compared</h1><p>first <code>{names[0]}</code></p>'
        f"<p>second <code>{names[1]}</code></p>{_remarks(diff)}</div>",
        _pair(_section(f"{which} run", _cards(f)) for which, f in zip(("First", "Second"), both, strict=True)),
        _section("Survivors", _survivors(first, diff)),
        _section("Verdicts that changed", _changes(diff.changes, second)),
        _section("Rules", _rules(first, second)),
        _pair(_section(f"Flow of the {which} run", run_charts.funnel_of(f.run)) for which, f in _named(both)),
        _pair(_section(f"Passes of the {which} run", passes_chart(f.run.record)) for which, f in _named(both)),
        _section("Figures", _figures(diff)),
        _section("Settings that differ", _listed(diff.settings) or "<p>the same stages with the same settings</p>"),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1">'
        f"<title>Tamis: {text(first.run.name)} and {text(second.run.name)}</title>"
        f"<style>{CSS}{STEPPER_CSS}{_CSS}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _named(both: Sequence[Facts]) -> list[tuple[str, Facts]]:
    return list(zip(("first", "second"), both, strict=True))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{text(title)}</h2>{body}</section>" if body else ""


def _pair(sections: Iterable[str]) -> str:
    parts = [part for part in sections if part]
    return f'<div class="pair">{"".join(parts)}</div>' if parts else ""


def _listed(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{text(sentence, 600)}</li>" for sentence in sentences[:_MAX_ROWS])
    return f"<ul>{items}</ul>" if items else ""


def _remarks(diff: RunDiff) -> str:
    remarks = list(diff.remarks)
    for paths, which in ((diff.only_first, "first"), (diff.only_second, "second")):
        if paths:
            remarks.append(f"{len(paths):,} files that only the {which} run read are left out, such as {paths[0]}")
    return _listed(remarks)


def _cards(facts: Facts) -> str:
    run = facts.run
    entries = run_charts.document_cards(run.counts) if run.counts is not None else []
    return cards([*entries, *run_charts.whole_run_cards(run.record), run_charts.peak_card(run)])


def _survivors(first: Facts, diff: RunDiff) -> str:
    """Return how many documents both runs kept, and how many only one of them, of the files that both read."""
    lost = sum(c.n_documents for c in diff.changes if c.before == KEPT)
    gained = sum(c.n_documents for c in diff.changes if c.after == KEPT)
    rows = [["kept by the first run only", f"{lost:,}"], ["kept by the second run only", f"{gained:,}"]]
    counts = first.run.counts
    if counts is not None and not diff.only_first and not counts.added:
        rows.insert(0, ["kept by both", f"{counts.written - lost:,}"])
    return table(["documents", ""], rows, (1,))


def _changes(changes: Sequence[Change], second: Facts) -> str:
    if not changes:
        return "<p>no document changed its verdict</p>"
    rows = [
        [
            f"{c.n_documents:,}",
            _name(c.before),
            _name(c.after),
            format_size(c.n_bytes),
            ", ".join(f"<code>{text(name, 200)}</code>" for name in c.examples),
        ]
        for c in changes[:_MAX_ROWS]
    ]
    why = text(command("why", output_of_run_dir(second.run_dir.resolve()), "DOCUMENT"), 400)
    columns = ["documents", "first run", "second run", "bytes", "for example"]
    folded = ""
    if len(rows) > _N_SHOWN:
        n = len(rows) - _N_SHOWN
        n_documents = sum(c.n_documents for c in changes[_N_SHOWN:_MAX_ROWS])
        folded = f"<details><summary>{n:,} more changes, of {n_documents:,} documents</summary>"
        folded += f"{table(columns, rows[_N_SHOWN:], (0, 3))}</details>"
    why_line = f'<p class="dim">Why one of them went: <code>{why}</code></p>'
    return table(columns, rows[:_N_SHOWN], (0, 3)) + folded + why_line


def _name(rule: str) -> str:
    """Return the name of a rule, which a narrow page breaks after its underscores."""
    return text(rule, 200).replace("_", "_<wbr>")


def _rules(first: Facts, second: Facts) -> str:
    """Return what each rule dropped in both runs, the largest change first."""
    counts = [{(d.stage, d.reason): d.documents for d in facts.drops} for facts in (first, second)]
    keys = sorted({*counts[0], *counts[1]}, key=lambda k: (-abs(counts[1].get(k, 0) - counts[0].get(k, 0)), k))
    most = max([*counts[0].values(), *counts[1].values()], default=1) or 1
    rows = []
    for stage, reason in keys[:_MAX_ROWS]:
        a, b = (count.get((stage, reason), 0) for count in counts)
        name = _name(reason) + (f'<br><span class="dim">stage {_name(stage)}</span>' if stage != reason else "")
        rows.append([name, f"{a:,}", bar(a / most, "k3"), f"{b:,}", bar(b / most, "k3"), f"{b - a:+,}"])
    return table(["rule", "first", "", "second", "", "change"], rows, (1, 3, 5)) if rows else ""


def _figures(diff: RunDiff) -> str:
    rows = [
        [text(f.name.replace("_", " ")), *("-" if v is None else text(shown(f.name, v)) for v in (f.before, f.after))]
        for f in diff.figures
    ]
    return table(["", "first run", "second run"], rows, (1, 2)) if rows else ""
