"""The head of the report: the verdict in one sentence, what needs attention, six figures, and where documents went."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tamis.observe.bottleneck import PassTimes, findings, passes_of, shares_of, time_shares
from tamis.observe.charts import run_charts
from tamis.observe.charts.svg import seconds_text, text
from tamis.observe.charts.tables import bar, cards, table
from tamis.observe.gpu_figures import gpu_cards
from tamis.observe.report.corpus import CorpusGroup, groups_of
from tamis.observe.report.facts import Facts
from tamis.observe.report.rules import RuleFacts, top_rule
from tamis.observe.report.token_flow import token_flow
from tamis.stores.run_locations import output_of_run_dir

_FAR = 3.0  # a group is named if its kept share is so many times below that of all
_MIN_GROUP = 20  # documents of the sample
_MAX_NAMED = 3
_MAX_STAGES = 30  # of all passes, those that took longest


def head(facts: Facts, rules: Sequence[RuleFacts]) -> str:
    """Return the title, the verdict and the figures."""
    run, manifest = facts.run, facts.run.manifest
    status, code = ("not finished", None) if manifest is None else (manifest.status, manifest.exit_code)
    good = status in ("finished", "sampled") and code == 0
    path = Path(output_of_run_dir(facts.run_dir.resolve()))
    shown = status if good or code is None else f"{status}, exit code {code}"
    lines = [
        f'<h1>{text(run.name or path.name)} <small class="{"good" if good else "bad"}">{text(shown, 200)}</small></h1>'
    ]
    if sentence := verdict(facts, rules):
        lines.append(f'<p class="verdict">{sentence}</p>')
    if run.message:
        lines.append(f'<p class="callout bad">{text(run.message, 2000)}</p>')
    remarks = manifest.remarks if manifest is not None else []
    lines += [f'<p class="callout">{text(line, 600)}</p>' for line in [*remarks, *callouts(facts)]]
    lines += [f'<p class="callout bad">{text(problem, 600)}</p>' for problem in facts.problems]
    lines.append(
        f'<p class="dim"><code>{text(path, 400)}</code> · run {text(run.run_id or "-")} · written '
        f"{time.strftime('%Y-%m-%d %H:%M:%S')}</p>"
    )
    return f'<header class="head">{"".join(lines)}<div id="cards">{_cards(facts)}</div></header>'


def verdict(facts: Facts, rules: Sequence[RuleFacts]) -> str:
    """Return what the run did to its corpus, in one sentence of HTML; "" while nothing is known."""
    counts = facts.run.counts
    if counts is None or not counts.records:
        return ""
    n = counts.records + counts.added
    kept = f"<b>{counts.written / n:.1%}</b> of {n:,} documents were kept" if n > 0 else "No documents were kept"
    if counts.not_sampled:
        kept += f" ({counts.not_sampled:,} are not in this sample)"
    top = top_rule(rules)
    if top is None or not counts.dropped:
        return f"{kept}; no rule dropped any." if not counts.dropped else f"{kept}."
    if top.stage in facts.run.duplicate_stages and top.documents == counts.dropped:
        return f'{kept}; <a href="#{top.anchor}"><b>{counts.dropped:,}</b></a> were removed as duplicates.'
    share = min(top.documents / counts.dropped, 1.0)
    of = "those dropped" if counts.dropped > 1 else "the one dropped"
    return f'{kept}; <a href="#{top.anchor}">{text(top.name)}</a> took <b>{share:.0%}</b> of {of}.'


def callouts(facts: Facts) -> list[str]:
    """Return what needs attention, as sentences."""
    counts, lines = facts.run.counts, []
    if counts is not None and counts.quarantined:
        share = counts.quarantined / max(counts.records, 1)
        lines.append(f"{counts.quarantined:,} documents ({share:.2%}) could not be processed: see Quarantine.")
    samples = facts.corpus.everywhere
    if samples and (overall := sum(s.outcome != "dropped" for s in samples) / len(samples)) > 0:
        for title, groups in groups_of(facts.corpus).items():
            low = [g for g in groups if _is_far_below(g, overall)] if title != "length" else []
            if low:
                names = ", ".join(f"{g.name} {g.kept_share:.0%}" for g in low[:_MAX_NAMED])
                lines.append(f"Far fewer documents are kept of {title} {names}, against {overall:.0%} of all.")
    if problems := [f for f in findings(facts.run) if f.weight > 0]:
        lines.append(f"What held the run back: {problems[0].cause} ({problems[0].proof}).")
    return lines


def _is_far_below(group: CorpusGroup, overall: float) -> bool:
    return group.n >= _MIN_GROUP and group.interval(False)[1] < overall and group.kept_share * _FAR < overall


def _cards(facts: Facts) -> str:
    """Return six figures of the whole run, and more where there is more: quarantine, samples, GPUs."""
    run = facts.run
    entries = run_charts.document_cards(run.counts) if run.counts is not None else []
    if run.counts is not None and not run.counts.quarantined:
        entries = [entry for entry in entries if entry[0] != "quarantined"]
    if facts.ledger is not None:
        entries += run_charts.whole_run_cards(run.record, run.about)
    if run.budget_bytes:
        entries.append(run_charts.peak_card(run))
    has_gpus = run.gpus or run.about.gpu is not None
    return cards([*entries, *gpu_cards(run.about)] if has_gpus else entries)


def flow(facts: Facts, rules: Sequence[RuleFacts]) -> str:
    """Return where documents, bytes and tokens went, from input to output; each rule leads to its section."""
    anchors = {(r.stage, r.name): r.anchor for r in rules if r.documents}

    def link(stage: str, rule: str) -> str:
        return anchors.get((stage, rule), "")

    documents = run_charts.funnel_of(facts.run, link)
    size = run_charts.bytes_funnel_of(facts.run, link)
    if not size:
        return documents
    amounts = token_flow(facts)
    tokens = run_charts.tokens_funnel_of(facts.run, link, amounts.dropped, amounts.kept)
    note = f'<p class="dim">{text(amounts.note)}</p>'
    return (
        '<div class="tabs"><input type="radio" name="flow" id="flow-documents" checked><label for="flow-documents">'
        'documents</label><input type="radio" name="flow" id="flow-bytes"><label for="flow-bytes">bytes</label>'
        '<input type="radio" name="flow" id="flow-tokens"><label for="flow-tokens">tokens</label>'
        f'<div class="tab">{documents}</div><div class="tab">{size}</div>'
        f'<div class="tab">{tokens}{note}</div></div>'
    )


def _details(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>{body}</details>"


def _by_pass(passes: Sequence[PassTimes]) -> str:
    """Return a row for each pass: where the time of its workers went, and what happened to them."""
    rows = []
    for one in passes:
        row = [text(one.title, 80), seconds_text(round(one.seconds, 1))]
        if one.work is None:  # a decision, in a process of its own
            rows.append([*row, *["-"] * 8])
            continue
        shares = shares_of(one.work, one.seconds)
        parts = [f"{s / shares.all_s:.0%}" if shares.all_s else "-" for s in shares]
        busy = "-" if one.work.gpu_busy is None else f"{one.work.gpu_busy:.0%}"
        rows.append([*row, *parts, f"{one.work.n_failed:,}", f"{one.work.n_recycled:,}", busy])
    columns = ["pass", "time", "reading", "computing", "waiting", "writing", "idle", "failed", "replaced", "GPU"]
    return table(columns, rows, tuple(range(1, len(columns))))


def _by_stage(passes: Sequence[PassTimes]) -> str:
    """Return the stages of all passes that took longest."""
    times = [(stage, one.title) for one in passes if one.work is not None for stage in one.work.stages]
    whole_s = sum(stage.seconds for stage, _ in times) or 1.0
    rows = [
        [
            text(stage.stage, 80),
            text(title, 80),
            seconds_text(round(stage.seconds, 1)),
            f"{stage.seconds / whole_s:.0%}",
            f"{min(stage.cpu_s / stage.seconds, 1.0):.0%}" if stage.seconds else "-",
            f"{stage.documents:,}",
        ]
        for stage, title in sorted(times, key=lambda t: -t[0].seconds)[:_MAX_STAGES]
    ]
    return table(["stage", "pass", "time", "of all", "computing", "documents"], rows, (2, 3, 4, 5))


def held_back(facts: Facts) -> str:
    """Return where the time of the workers went, and causes with proof and remedy."""
    run = facts.run
    shares, passes = time_shares(run), passes_of(run)
    html = ""
    if shares is not None and shares.all_s:
        activities = (
            "reading",
            "computing in stages",
            "waiting in stages, for files or devices",
            "writing and keeping the books",
            "without a partition: starting, or nothing to do",
        )
        rows = [
            [name, seconds_text(round(s, 1)), f"{s / shares.all_s:.0%}", bar(s / shares.all_s)]
            for name, s in zip(activities, shares, strict=True)
        ]
        html += table([f"time of all workers{' in all passes' if len(passes) > 1 else ''}", "", "", ""], rows, (1, 2))
        html += _details("By pass", _by_pass(passes)) + _details("By stage", _by_stage(passes))
    bottlenecks = findings(run)
    rows = [[text(f.cause), text(f.proof, 300), text(f.remedy, 300)] for f in bottlenecks]
    if rows:
        html += table(["cause", "proof", "what to change"], rows)
    elif html:
        html += '<p class="dim">Nothing stands out, or the run was too short to tell.</p>'
    return html
