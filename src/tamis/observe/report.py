"""report.html: what a run did, as one self-contained page (no scripts, nothing loaded from elsewhere); report.json beside it
has the totals and what was dropped, for programs.

Reads the run directory only: manifest.json, settings.json, run.sqlite, quarantine/. Everything in there is treated as hostile
text and escaped. Parts that are missing or damaged are named on the page; only a missing run directory is an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tamis.engine.ledger import Ledger
from tamis.errors import TamisError, UsageError
from tamis.observe.chart import memory_chart
from tamis.observe.drops import Drop, drops_of
from tamis.observe.quarantine import Entry, read_entries
from tamis.observe.samples import Samples, read_samples
from tamis.observe.verdicts import input_paths
from tamis.sizes import format_size

_MAX_ENTRIES = 100_000  # quarantine entries looked at
_EXAMPLES_PER_REASON = 3
_MAX_REASONS = 50
_RAW_CHARS = 200
_CSS = """
:root{--fg:#1d2330;--dim:#667085;--bg:#fff;--line:#d9dee7;--card:#f6f7f9;--ink:#2f6fde;--bad:#c4320a;--good:#067647}
@media (prefers-color-scheme:dark){:root{--fg:#e6e9ef;--dim:#98a2b3;--bg:#14171d;--line:#333a47;--card:#1c212a;--ink:#7aa7ff;--bad:#ff9c66;--good:#75e0a7}}
*{box-sizing:border-box}body{margin:0 auto;max-width:70rem;padding:2rem 1.2rem;font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg)}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}p{margin:.3rem 0}.dim{color:var(--dim)}.bad{color:var(--bad)}.good{color:var(--good)}
table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}th{text-align:left;font-weight:600;color:var(--dim)}
th,td{padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.8rem;margin-top:1.2rem}.card{background:var(--card);border-radius:.5rem;padding:.7rem .9rem}
.card b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums}.bar{background:var(--ink);height:.55rem;border-radius:.2rem;min-width:1px}
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}svg{width:100%;height:auto}svg text{fill:var(--dim);font:12px system-ui,sans-serif}
"""


@dataclass
class Facts:
    """Everything the page shows."""

    run_dir: Path
    manifest: dict[str, Any] = field(default_factory=dict)
    ledger: Ledger | None = None
    drops: list[Drop] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    samples: Samples = field(default_factory=Samples)
    reasons: dict[tuple[str, str], list[Entry]] = field(default_factory=dict)
    n_by_reason: dict[tuple[str, str], int] = field(default_factory=dict)
    n_entries: int = 0
    problems: list[str] = field(default_factory=list)


def write_report(run_dir: str | os.PathLike[str]) -> Path:
    """Write report.html and report.json into the run directory, each whole or not at all; returns the path of the page."""
    folder = Path(run_dir)
    if not folder.is_dir():
        raise TamisError(f"{folder} is not a run directory; give the _tamis folder of an output")
    facts = gather(folder)
    _write(folder / "report.json", json.dumps(as_dict(facts), indent=1) + "\n")
    return _write(folder / "report.html", render(facts))


def _write(path: Path, text: str) -> Path:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(temporary, path)
    return path


def as_dict(facts: Facts) -> dict[str, Any]:
    """Totals and drops as plain JSON values; counts are null until the run has finished."""
    ledger, about = facts.ledger, facts.manifest
    return {
        "status": str(about.get("status", "not finished")),
        "exit_code": about.get("exit_code"),
        "message": str(about.get("message", "")),
        "problems": facts.problems,
        "n_records": None if ledger is None else ledger.records.n,
        "n_written": None if ledger is None else ledger.written.n,
        "n_dropped": None if ledger is None else ledger.n_dropped,
        "n_quarantined": None if ledger is None else ledger.quarantined.n,
        "read_bytes": None if ledger is None else ledger.read_bytes,
        "written_bytes": None if ledger is None else ledger.written_bytes,
        "drops": [asdict(d) for d in facts.drops],
    }


def gather(folder: Path) -> Facts:
    facts = Facts(folder)
    facts.manifest = _json(folder / "manifest.json", facts.problems)
    if "ledger" in facts.manifest:
        try:
            facts.ledger = Ledger.from_dict(facts.manifest["ledger"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as exc:
            facts.problems.append(f"manifest.json is damaged: its ledger cannot be read ({type(exc).__name__})")
        else:
            facts.drops = drops_of(facts.ledger, lambda: _input_paths(folder, facts.problems))
    kept = _json(folder / "settings.json", facts.problems).get("settings", [])
    facts.settings = [e for e in kept if isinstance(e, dict)] if isinstance(kept, list) else []
    facts.samples = read_samples(folder / "run.sqlite", facts.problems)
    for entry in read_entries(folder / "quarantine", facts.problems):
        facts.n_entries += 1
        if facts.n_entries > _MAX_ENTRIES:
            break
        key = (entry.reason, entry.stage)
        if key in facts.n_by_reason or len(facts.n_by_reason) < _MAX_REASONS:
            facts.n_by_reason[key] = facts.n_by_reason.get(key, 0) + 1
            examples = facts.reasons.setdefault(key, [])
            if len(examples) < _EXAMPLES_PER_REASON:
                examples.append(entry)
    return facts


def render(facts: Facts) -> str:
    parts = [
        _head(facts),
        _funnel(facts),
        _dropped(facts),
        _memory(facts),
        _quarantine(facts),
        _settings(facts),
        _counters(facts),
        _events(facts),
        _environment(),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Tamis: {_e(facts.run_dir.resolve().parent.name)}</title><style>{_CSS}</style></head><body>"
        + "".join(parts)
        + "</body></html>\n"
    )


def _head(facts: Facts) -> str:
    about = facts.manifest
    status = str(about.get("status", "not finished"))
    code = about.get("exit_code")
    good = status in ("finished", "sampled") and code == 0
    lines = [f"<h1>{_e(facts.run_dir.resolve().parent)}</h1>"]
    lines.append(
        f'<p class="{"good" if good else "bad"}">{_e(status)}{"" if good or code is None else f", exit code {_e(code)}"}</p>'
    )
    if about.get("message"):
        lines.append(f'<p class="bad">{_e(about["message"])}</p>')
    lines += [f'<p class="bad">{_e(problem)}</p>' for problem in facts.problems]
    lines.append(f'<p class="dim">run {_e(about.get("run_id", "-"))}, written {time.strftime("%Y-%m-%d %H:%M:%S")}</p>')
    lines.append(_cards(facts))
    return "".join(lines)


def _cards(facts: Facts) -> str:
    cards: list[tuple[str, str]] = []
    ledger, about = facts.ledger, facts.manifest
    if ledger is not None:
        cards += [
            ("read", f"{ledger.records.n:,}"),
            ("written", f"{ledger.written.n:,}"),
            ("dropped", f"{ledger.n_dropped:,}"),
        ]
        cards.append(("quarantined", f"{ledger.quarantined.n:,}"))
        seconds = _number(about.get("seconds"))
        if seconds:
            cards += [("seconds", f"{seconds:,.1f}"), ("MB/s", f"{ledger.read_bytes / 1e6 / seconds:,.0f}")]
    elif facts.samples.points:
        last = facts.samples.last
        cards += [(name, f"{last[name]:,}") for name in ("documents", "written", "dropped", "quarantined")]
    peak, budget = (
        _number(about.get("peak_bytes")) or facts.samples.peak_bytes,
        _number(about.get("budget_bytes")) or facts.samples.budget_bytes,
    )
    if budget:
        cards.append(("peak of budget", f"{format_size(peak)} / {format_size(budget)}"))
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><span class="dim">{_e(k)}</span><b>{_e(v)}</b></div>' for k, v in cards)
        + "</div>"
    )


def _funnel(facts: Facts) -> str:
    ledger = facts.ledger
    if ledger is None:
        return ""
    most = max(ledger.records.n, 1)
    rows: list[list[str]] = [["records of the input", "", _n(ledger.records.n), "", _bar(ledger.records.n / most)]]
    for name, n in (("quarantined", ledger.quarantined.n), ("not in this sample", ledger.not_sampled.n)):
        if n:
            rows.append([f'<span class="dim">{name}</span>', "", "", _n(n), ""])
    for book in ledger.stages:
        n_out = book.out.n + book.derived.n
        why = [f"{_e(reason)}: {t.n:,}" for reason, t in book.dropped.items() if reason != book.name]
        why += [f"replaced by {book.derived.n:,} new documents: {book.consumed.n:,}"] if book.consumed.n else []
        dropped = sum(t.n for t in book.dropped.values())
        name = _e(book.name) + "".join(f'<br><span class="dim">{w}</span>' for w in why)
        rows.append([name, _n(book.into.n), _n(n_out), _n(dropped), _bar(n_out / most)])
    rows.append(["written", _n(ledger.written.n), "", "", _bar(ledger.written.n / most)])
    notes = f'<p class="dim">{ledger.n_blank_lines:,} blank lines passed over; {ledger.n_bad_ranges:,} stretches of input could not be read.</p>'
    return "<h2>Documents</h2>" + _table(["stage", "in", "out", "dropped", ""], rows, (1, 2, 3)) + notes


def _dropped(facts: Facts) -> str:
    if not facts.drops:
        return ""
    rows = []
    for d in facts.drops:
        rule = _e(d.reason) + (f'<br><span class="dim">stage {_e(d.stage)}</span>' if d.reason != d.stage else "")
        examples = "".join(f"<p><code>{_e(name)}</code></p>" for name in d.examples)
        rows.append([rule, _n(d.documents), _e(format_size(d.bytes) if d.bytes else "-"), examples])
    note = (
        f'<p class="dim">Why one of them went: <code>tamis why {_e(facts.run_dir.resolve().parent)} DOCUMENT</code></p>'
    )
    return "<h2>Dropped</h2>" + _table(["rule", "documents", "bytes", "for example"], rows, (1, 2)) + note


def _memory(facts: Facts) -> str:
    chart = memory_chart(facts.samples.points, facts.samples.budget_bytes)
    return f"<h2>Memory against the budget</h2>{chart}" if chart else ""


def _quarantine(facts: Facts) -> str:
    if not facts.n_by_reason:
        return ""
    rows = []
    for key, n in sorted(facts.n_by_reason.items(), key=lambda item: -item[1]):
        reason, stage = key
        examples = "".join(
            f"<p><span class=dim>{_e(x.file)} at {x.offset:,} ({_e(x.unit)}), length {x.length:,}</span><br><code>{_e(x.start_of_raw(_RAW_CHARS))}</code></p>"
            for x in facts.reasons[key]
        )
        rows.append(
            [_e(reason) + (f'<br><span class="dim">stage {_e(stage)}</span>' if stage else ""), _n(n), examples]
        )
    more = (
        f'<p class="dim">Only the first {_MAX_ENTRIES:,} entries were looked at.</p>'
        if facts.n_entries > _MAX_ENTRIES
        else ""
    )
    return "<h2>Quarantine</h2>" + _table(["reason", "entries", "examples"], rows, (1,)) + more


def _settings(facts: Facts) -> str:
    if not facts.settings:
        return ""
    rows = [
        [_e(s.get("name")), f"<code>{_e(_value(s.get('value')))}</code>", _e(s.get("chosen_by")), _e(s.get("why"))]
        for s in facts.settings
    ]
    return "<h2>Settings and their reasons</h2>" + _table(["setting", "value", "chosen by", "why"], rows)


def _counters(facts: Facts) -> str:
    counters = facts.manifest.get("counters")
    if not isinstance(counters, dict) or not counters:
        return ""
    return "<h2>What the supervisor did</h2>" + _table(
        ["counter", "times"], [[_e(k), _e(v)] for k, v in counters.items()], (1,)
    )


def _events(facts: Facts) -> str:
    if not facts.samples.events:
        return ""
    rows = [
        [_e(time.strftime("%H:%M:%S", time.localtime(at))), _e(kind), _e(text[:500])]
        for at, kind, text in facts.samples.events
    ]
    return "<h2>Last events</h2>" + _table(["time", "event", "what"], rows)


def _environment() -> str:
    from importlib.metadata import PackageNotFoundError, version

    rows = [["python", platform.python_version()], ["platform", platform.platform()], ["cores", str(os.cpu_count())]]
    for name in ("tamis", "numpy", "pyarrow", "numba"):
        with contextlib.suppress(PackageNotFoundError):
            rows.append([name, version(name)])
    return "<h2>Environment</h2>" + _table(["", ""], [[_e(a), _e(b)] for a, b in rows])


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Cells are HTML: whoever makes them escapes."""
    kind = ['class="n"' if i in right else "" for i in range(len(columns))]
    head = "".join(f"<th {kind[i]}>{_e(c)}</th>" for i, c in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(f"<td {kind[i]}>{cell}</td>" for i, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _bar(share: float) -> str:
    return f'<div class="bar" style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></div>'


def _e(value: object) -> str:
    return escape(str("" if value is None else value))


def _n(n: int) -> str:
    return f"{n:,}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _value(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value > 1_000_000:
        return f"{value:,} ({format_size(value)})"
    return json.dumps(value, ensure_ascii=False)[:200] if not isinstance(value, str) else value


def _input_paths(folder: Path, problems: list[str]) -> list[str]:
    try:
        return input_paths(folder)
    except UsageError as exc:
        problems.append(str(exc))
        return []


def _json(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        problems.append(f"{path.name} cannot be read ({type(exc).__name__})")
        return {}
    if not isinstance(data, dict):
        problems.append(f"{path.name} is damaged: expected an object")
        return {}
    return data
