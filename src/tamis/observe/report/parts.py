"""The parts of the page that are tables. Each gives "" where there is nothing to show."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Mapping

from tamis.engine.ledger import UNTRACED
from tamis.observe.charts import run_charts
from tamis.observe.charts.svg import number, seconds_text, text
from tamis.observe.charts.tables import bar, settings_table, table
from tamis.observe.report.facts import MAX_ENTRIES, Facts
from tamis.sizes import format_size
from tamis.tasks.lineage import NOTE_METRIC

_MAX_ROWS = 200
_MAX_TOKEN_ROWS = 12
_RAW_CHARS = 200
_NAME = 300
_MEASURED = (
    ("peak memory", "peak_bytes"),
    ("scratch", "scratch_bytes"),
    ("output", "output_bytes"),
    ("time", "seconds"),
)


def documents(facts: Facts) -> str:
    """Return the ledger: every document at every stage."""
    ledger = facts.ledger
    if ledger is None:
        return ""
    most = max(ledger.n_read, 1)
    rows: list[list[str]] = [["records of the input", "", _n(ledger.n_read), "", bar(ledger.n_read / most, "k6")]]
    for name, n in (("quarantined while reading", ledger.unread.n), ("not in this sample", ledger.not_sampled.n)):
        if n:
            rows.append([f'<span class="dim">{name}</span>', "", "", _n(n), ""])
    for book in ledger.stages[:_MAX_ROWS]:
        why = [f"replaced by {book.derived.n:,} new documents: {book.consumed.n:,}"] if book.consumed.n else []
        if n := int(book.metrics.get(UNTRACED, 0)):
            why.append(f"written as the stage returned them, with no record of the input behind them: {n:,}")
        counts = {m.removeprefix(NOTE_METRIC): n for m, n in sorted(book.metrics.items()) if m.startswith(NOTE_METRIC)}
        why += [f"{note}: {int(n):,}" for note, n in counts.items()]
        why += [f"{name}: {int(n):,}" for name, n in _tokens(book.metrics)]
        why += [f"failed on and quarantined: {book.quarantined.n:,}"] if book.quarantined.n else []
        name = text(book.name, _NAME) + "".join(f'<br><span class="dim">{text(w)}</span>' for w in why)
        rows.append([name, _n(book.n_in), _n(book.n_out), _n(sum(book.losses.values())), bar(book.n_out / most, "k2")])
    if ledger.unwritten.n:
        rows.append(['<span class="dim">quarantined while writing</span>', "", "", _n(ledger.unwritten.n), ""])
    rows.append(["written", _n(ledger.written.n), "", "", bar(ledger.written.n / most, "k2")])
    notes = (
        f'<p class="dim">{ledger.n_blank_lines:,} blank lines skipped; {ledger.n_bad_ranges:,} stretches of input '
        f"could not be read ({text(format_size(ledger.lost_bytes))} as stored).</p>"
    )
    if ledger.skipped:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in sorted(ledger.skipped.items()))
        notes += f'<p class="dim">Records of the input that are no documents: {text(reasons)}.</p>'
    html = table(["stage", "in", "out", "dropped", ""], rows, (1, 2, 3))
    return f"<h3>The ledger</h3>{html}{notes}{skipped_files(facts)}"


def _tokens(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the counts of tokens of a stage that made them: of all documents, then by language and source."""
    parts = sorted(((k, n) for k, n in metrics.items() if k.startswith("tokens ")), key=lambda kn: (-kn[1], kn[0]))
    return [("tokens", metrics["tokens"]), *parts[:_MAX_TOKEN_ROWS]] if "tokens" in metrics else []


def skipped_files(facts: Facts) -> str:
    """Return a table of the files that were at the input's location and were not read."""
    rows = []
    for entry in facts.skipped_files[:_MAX_ROWS]:
        examples = "".join(f"<p><code>{text(name, _NAME)}</code></p>" for name in entry.examples[:3])
        rows.append([text(entry.reason, _NAME), _n(entry.n), examples])
    return "<h3>Skipped, not read</h3>" + table(["reason", "found", "for example"], rows, (1,)) if rows else ""


def other_scores(facts: Facts) -> str:
    """Return the distributions of scores that no rule compares with a limit."""
    compared = {(r.stage, r.score) for r in facts.rules} | {(r.stage, run_charts.SIMILARITY) for r in facts.rules}
    charts = run_charts.scores_of(facts.run, compared)
    if not charts:
        return ""
    drawn = "".join(f"<div><h3>{text(name)}</h3>{chart}</div>" for name, chart in charts)
    note = "The area of a bar is the number of documents."
    if n := run_charts.count_hidden_scores(facts.run, compared):
        note += f" {n:,} more scores are recorded in manifest.json."
    return f'<p class="dim">{note}</p><div class="devices many">{drawn}</div>'


def stages(facts: Facts) -> str:
    found = facts.run.stages[:_MAX_ROWS]
    if not found:
        return ""
    total_s = sum(number(p.seconds) for p in found) or 1.0
    rows = [
        [
            text(p.stage, _NAME),
            _n(p.n_in),
            f"{format_size(p.in_bytes / p.seconds)}/s" if p.seconds > 0 and p.in_bytes else "-",
            seconds_text(round(p.seconds, 1)),
            f"{p.seconds / total_s:.0%}",
            format_size(p.peak_bytes) if p.peak_bytes else "-",
            bar(p.seconds / total_s),
        ]
        for p in found
    ]
    columns = ["stage", "documents", "while in it", "time", "share", "peak of a partition", "share of the time"]
    return table(columns, rows, range(1, 6))


def prediction(facts: Facts) -> str:
    """Return a table of what was expected when the run started, next to what was measured."""
    found = facts.run.prediction
    rows = []
    for name, key in _MEASURED:
        span = found.get(key)
        if not isinstance(span, Mapping):
            continue
        took = span.get("measured", _took(facts, key))
        shown = f"{_amount(key, span['low'])} to {_amount(key, span['high'])}"
        inside = span.get("inside")
        verdict = (
            '<span class="good">yes</span>'
            if inside is True
            else '<span class="bad">no</span>'
            if inside is False
            else ""
        )
        rows.append(
            [name, _amount(key, span["expected"]), shown, _amount(key, took) if took is not None else "-", verdict]
        )
    if not rows:
        return ""
    share = number(found.get("confidence"))
    basis = f'<p class="dim">From the {text(found["basis"], 300)}.</p>' if found.get("basis") else ""
    sure = f"in {share:.0%} of cases" if 0 < share <= 1 else "range"
    return table(["", "expected", sure, "measured", "inside"], rows, (1, 2, 3)) + basis


def _took(facts: Facts, key: str) -> object:
    if not facts.run.manifest:
        return None
    ledger = facts.ledger
    written = ledger.written_bytes if ledger is not None else None
    return {"peak_bytes": facts.run.peak_bytes, "seconds": facts.run.seconds, "output_bytes": written}.get(key)


def _amount(key: str, value: object) -> str:
    n = number(value)
    return text(f"{n:,.1f} s" if key == "seconds" else format_size(n))


def quarantine(facts: Facts) -> str:
    if not facts.n_by_reason:
        return ""
    rows = []
    for key, n in sorted(facts.n_by_reason.items(), key=lambda item: -item[1]):
        reason, stage = key
        examples = "".join(
            f'<p><span class="dim">{text(x.file, _NAME)} at {x.offset:,} ({text(x.unit)}), length '
            f"{x.length:,}</span><br>"
            + (
                f"<code>{text(x.start_of_raw(_RAW_CHARS), _RAW_CHARS)}</code></p>"
                if facts.run.shows_documents
                else "</p>"
            )
            for x in facts.reasons[key]
        )
        where = f'<br><span class="dim">stage {text(stage, _NAME)}</span>' if stage else ""
        rows.append([text(reason, _NAME) + where, _n(n), examples])
    made = table(["reason", "entries", "examples"], rows, (1,))
    if facts.n_entries > MAX_ENTRIES:
        made += f'<p class="dim">Only the first {MAX_ENTRIES:,} entries were looked at.</p>'
    return made


def settings(facts: Facts) -> str:
    return settings_table(facts.run.settings, _evidence)


def _evidence(setting: Mapping[str, object]) -> str:
    behind = setting.get("evidence")
    if not isinstance(behind, Mapping) or not behind:
        return ""
    return f'<br><span class="dim">{text(_figures(behind), 400)}</span>'


def _figures(evidence: Mapping[str, object]) -> str:
    """Return the figures that led to a choice, in one line."""
    shown = []
    for name, value in list(evidence.items())[:20]:
        is_size = str(name).endswith("_bytes") and isinstance(value, (int, float)) and not isinstance(value, bool)
        shown.append(f"{name} {format_size(number(value)) if is_size else json.dumps(value, ensure_ascii=False)[:80]}")
    return ", ".join(shown)


def counters(facts: Facts) -> str:
    counts = facts.run.manifest.counters if facts.run.manifest is not None else {}
    rows = [[text(k), text(v)] for k, v in list(counts.items())[:_MAX_ROWS]]
    return table(["counter", "times"], rows, (1,)) if rows else ""


def _versions(*names: str) -> dict[str, str]:
    """Return the versions of installed packages, from the names of their folders.

    importlib.metadata would take 10 ms of every run.
    """
    versions: dict[str, str] = {}
    for place in reversed(sys.path):  # the first one counts
        with contextlib.suppress(OSError):
            for entry in os.listdir(place or "."):
                name, _, version = entry.removesuffix(".dist-info").partition("-")
                if name in names and entry.endswith(".dist-info"):
                    versions[name] = version
    return versions


def environment() -> str:
    system = os.uname()  # not platform.platform(), which starts another program
    rows = [
        ["python", platform.python_version()],
        ["platform", f"{system.sysname} {system.release} {system.machine}"],
        ["cores", str(os.cpu_count())],
    ]
    rows += [[name, version] for name, version in _versions("tamis", "numpy", "pyarrow").items()]
    return table(["", ""], [[text(a), text(b)] for a, b in rows])


def _n(n: int) -> str:
    return f"{n:,}"
