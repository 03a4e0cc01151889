"""Sections about the documents: samples to read, groups with their kept share, duplicates side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tamis.engine.samples import DocumentSample, SampleOutcome, rule_roles
from tamis.errors import FormatError
from tamis.observe.charts import run_charts
from tamis.observe.charts.svg import text
from tamis.observe.charts.tables import bar, table
from tamis.observe.records import text_at
from tamis.observe.report import excerpts
from tamis.observe.report.corpus import groups_of
from tamis.observe.report.facts import Facts
from tamis.observe.snapshot import read_object

_N_PAIRS = 10
_PAIR_CHARS = 1500


def samples(facts: Facts) -> str:
    """Return the documents to read, with a search field and a choice of outcomes that the script activates."""
    found = sorted(facts.corpus.documents, key=lambda s: s.key)
    if not any(s.excerpt is not None and s.excerpt.text for s in found):
        return ""  # none, or without texts: clips
    n = {o: sum(s.outcome is o for s in found) for o in SampleOutcome}
    choice = "".join(f'<button type="button" data-show="{o}">{o} {n[o]:,}</button>' for o in SampleOutcome if n[o])
    every = f'<button type="button" data-show="" aria-pressed="true">all {len(found):,}</button>'
    tools = (
        '<div class="tools" hidden>'
        '<input type="search" placeholder="search in texts" aria-label="search in samples">'
        f'<span class="group">{every}{choice}</span>'
        '<span class="dim" id="found" role="status"></span><button type="button" id="every-rule" hidden></button>'
        '<span class="dim keys">j, k: next, previous</span></div>'
    )
    note = (
        f'<p class="dim">{len(found):,} documents, chosen by a hash of their identity: the same ones in every run over '
        "the same input. Texts are cut.</p>"
    )
    return f'{note}{tools}<div class="list" tabindex="0">{excerpts.rows_of(found, facts.corpus.paths)}</div>'


def composition(facts: Facts) -> str:
    """Return groups of documents: their share before and after, and the kept share of each."""
    groups, everywhere = groups_of(facts.corpus), facts.corpus.everywhere
    html = run_charts.lengths_of(facts.run)
    if html:
        html = f"<h3>Length of documents</h3>{html}"
    n, n_kept = len(everywhere), sum(s.outcome is not SampleOutcome.DROPPED for s in everywhere)
    counts = facts.run.counts
    is_all = counts is not None and n >= counts.records + counts.added - counts.quarantined
    tables = []
    for title, found in groups.items():
        rows = []
        for g in found:
            low, high = g.interval(is_all)
            interval = "" if is_all else f' <span class="dim">{low:.0%}-{high:.0%}</span>'
            after = f"{g.n_kept / n_kept:.1%}" if n_kept else "-"
            share = bar(g.kept_share, "k2")
            rows.append([text(g.name, 80), f"{g.n / n:.1%}", after, f"{g.kept_share:.0%}{interval}", share])
        columns = [title, "before", "after", "kept", ""]
        tables.append(f"<div><h3>By {title}</h3>{table(columns, rows, (1, 2, 3))}</div>")
    if tables:
        html += f'<div class="devices wide">{"".join(tables)}</div>'
    if groups and not is_all:
        html += (
            '<p class="dim">Before and after: the share of a group in the input and in what is kept. Estimated from '
            f"{n:,} documents chosen by a hash of their identity, with 95 % intervals.</p>"
        )
    return html


def duplicates(facts: Facts) -> str:
    """Return the sizes of clusters, how similar duplicates are, and some of them next to what was kept for them."""
    summaries = _summaries(facts)
    html = ""
    for name, summary in summaries.items():
        sizes = summary.get("group_sizes")
        if not isinstance(sizes, Mapping) or not sizes:
            continue
        counts = {str(k): v for k, v in list(sizes.items())[:40] if isinstance(v, int) and not isinstance(v, bool)}
        most = max(counts.values(), default=1) or 1
        rows = [[text(k, 40), f"{v:,}", bar(v / most, "k4")] for k, v in counts.items()]
        title = f"Sizes of clusters ({name})" if len(summaries) > 1 else "Sizes of clusters"
        html += f"<h3>{text(title)}</h3>" + table(["documents in a cluster", "clusters", ""], rows, (1,))
    if similar := run_charts.similarities_of(facts.run):
        html += f"<h3>Similarity to the kept document</h3>{similar}"
    pairs = "".join(_pair(facts, s) for s in _removed(facts)[:_N_PAIRS])
    if pairs:
        html += f"<h3>Removed and kept, side by side</h3>{pairs}"
    return html


def _summaries(facts: Facts) -> dict[str, Mapping[str, Any]]:
    """Return the figures of each deduplication of the run, by its name."""
    found: dict[str, Mapping[str, Any]] = {}
    one = read_object(facts.run_dir / "dedup.json", facts.problems).get("summary")
    several = read_object(facts.run_dir / "curation.json", facts.problems).get("deduplications")
    if isinstance(one, Mapping):
        found[facts.run.name] = one
    if isinstance(several, Mapping):
        found |= {str(k)[:80]: v for k, v in list(several.items())[:20] if isinstance(v, Mapping)}
    return found


def _removed(facts: Facts) -> list[DocumentSample]:
    """Return samples that were removed as duplicates of another document."""
    removing = facts.run.duplicate_stages
    found = {s.key: s for s in facts.corpus.documents if s.stage in removing}
    for stage, rule in facts.corpus.selection.chosen.rules:
        if stage in removing:
            found |= {s.key: s for role in rule_roles(stage, rule) for s in facts.corpus.selection.of_role(role)}
    return sorted(found.values(), key=lambda s: s.key)


def _pair(facts: Facts, sample: DocumentSample) -> str:
    """Return a removed document next to the one that was kept, their differences marked."""
    kept, similarity = _partner(sample.value)
    if not kept or sample.excerpt is None:
        return ""
    path, _, offset = kept.rpartition(":")
    other = None
    if facts.reads_texts and offset.isdecimal():
        try:
            other = text_at(path, int(offset), facts.text_field)
        except (OSError, ValueError, FormatError, RecursionError):
            other = None
    alike = "" if similarity is None else f" · similarity {similarity:.3g}"
    name = sample.id or f"{facts.corpus.paths.get(sample.file, '')}:{sample.offset}"
    head = (
        f'<summary><code>{text(name, 80)}</code> <span class="dim">repeats <code>{text(kept, 200)}</code>{alike}</span>'
    )
    if other is None:
        body = excerpts.block(excerpts.whole(sample.excerpt))
        why = (
            "" if facts.reads_texts else "; the run removes values that must not be stored, so that inputs are not read"
        )
        body += f'<p class="dim">{text(f"The kept document cannot be read here at once{why}.")}</p>'
    else:
        start = sample.excerpt.start
        old, new = excerpts.difference(sample.excerpt.text[:_PAIR_CHARS], other[start : start + _PAIR_CHARS])
        same = " The texts shown are equal." if "<del>" not in old and "<ins>" not in new else ""
        body = excerpts.side_by_side(("removed", old), ("kept", new)) + (f'<p class="dim">{same}</p>' if same else "")
    return f'<details class="doc">{head}</summary>{body}</details>'


def _partner(value: str) -> tuple[str, float | None]:
    """Return the name of the kept document in a verdict, and the similarity."""
    try:
        found = json.loads(value)
        kept, similarity = found["kept"], found.get("similarity")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", None
    return str(kept)[:1000], float(similarity) if isinstance(similarity, (int, float)) else None
