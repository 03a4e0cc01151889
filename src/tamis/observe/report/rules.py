"""The section on rules: each in words, with its numbers, its distribution, a slider for its limit, and examples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tamis.engine.samples import rule_roles
from tamis.hints import command, quoted
from tamis.observe.charts import run_charts
from tamis.observe.charts.histogram import Bars, histogram_chart
from tamis.observe.charts.svg import share_text, text
from tamis.observe.charts.tables import bar
from tamis.observe.drops import Drop
from tamis.observe.report import excerpts
from tamis.observe.report.corpus import hit_by
from tamis.observe.report.facts import Facts
from tamis.observe.verdicts import AT_LEAST, PlannedRule, is_number
from tamis.sizes import format_size
from tamis.stores.run_locations import output_of_run_dir

_N_SHOWN = 20  # rules that are not folded together
_MAX_RULES = 120
_MAX_STOPS = 400


class RuleFacts(NamedTuple):
    """One rule: as planned (None: a stage that named none before the run), and what it dropped."""

    anchor: str
    stage: str
    name: str
    planned: PlannedRule | None
    documents: int = 0
    bytes: int = 0
    n_seen: int | None = None  # documents that reached it
    table: Mapping[str, Any] | None = None  # distribution of its scores


def rules_of_run(facts: Facts) -> list[RuleFacts]:
    """Return all rules in the order of the pipeline, then what dropped documents without being planned."""
    planned = {(r.stage, r.name or r.stage): r for r in facts.rules}
    drops = {(d.stage, d.reason): d for d in facts.drops}
    seen = {p.stage: p.n_in for p in facts.run.stages}
    keys = list(dict.fromkeys([*planned, *drops]))
    rules = []
    for i, key in enumerate(keys[:_MAX_RULES]):
        rule, drop = planned.get(key), drops.get(key, Drop(*key, 0, 0, []))
        table = run_charts.score_table(facts.run, key[0], rule.score if rule is not None else key[1])
        n_seen = sum(int(b[2]) for b in table["bins"]) if table is not None else seen.get(key[0])
        rules.append(RuleFacts(f"rule-{i}", *key, rule, drop.documents, drop.bytes, n_seen, table))
    return rules


def rules_section(facts: Facts, rules: Sequence[RuleFacts]) -> str:
    """Return the rules that dropped documents, most of them first, then the others in one line."""
    active = sorted((r for r in rules if r.documents), key=lambda r: -r.documents)
    idle = [r for r in rules if not r.documents and r.planned is not None and r.planned.name]
    if not active and not idle:
        return ""
    most = max((r.documents for r in active), default=1)
    shown = [_rule(facts, r, most, i == 0) for i, r in enumerate(active)]
    html = "".join(shown[:_N_SHOWN])
    if more := shown[_N_SHOWN:]:
        n = sum(r.documents for r in active[_N_SHOWN:])
        html += f"<details><summary>{len(more):,} more rules, {n:,} documents</summary>{''.join(more)}</details>"
    why = text(command("why", output_of_run_dir(facts.run_dir.resolve()), "DOCUMENT"), 400)
    html += f'<p class="dim">Why one of them went: <code>{why}</code></p>' if active else ""
    if idle:
        names = ", ".join(f"<code>{text(r.name)}</code>" for r in idle)
        noun = "rule" if len(idle) == 1 else "rules"
        html += f"<details><summary>{len(idle):,} {noun} that dropped nothing</summary><p>{names}</p></details>"
    return html


def _rule(facts: Facts, rule: RuleFacts, most: int, is_open: bool) -> str:
    share = f" · {text(share_text(rule.documents, rule.n_seen))} of those it saw" if rule.n_seen else ""
    stage = f' <span class="dim">{text(rule.stage)}</span>' if rule.stage != rule.name else ""
    size = f" · {format_size(rule.bytes)}" if rule.bytes else ""
    kind = "k4" if rule.stage in facts.run.duplicate_stages else "k3"
    noun = "document" if rule.documents == 1 else "documents"
    return (
        f'<details class="rule" id="{rule.anchor}" data-rule="{_attribute(f"{rule.stage}:{rule.name}")}"'
        f"{' open' if is_open else ''}><summary><span><b>{text(rule.name)}</b>{stage}</span>"
        f'<span class="n">{rule.documents:,} {noun}{share}{size}</span>{bar(rule.documents / most, kind)}</summary>'
        f"{_words(rule)}{_sources(facts, rule)}{_chart(rule)}{_slider(facts, rule)}{_examples(facts, rule)}</details>"
    )


def _words(rule: RuleFacts) -> str:
    """Return what the rule keeps, as a sentence."""
    planned = rule.planned
    if planned is None or not planned.name:
        return ""
    what = planned.meaning[:1].lower() + planned.meaning[1:].rstrip(".") if planned.meaning else planned.name
    limits = [f"{'at least' if s == AT_LEAST else 'at most'} {planned.limits[n]:g}" for n, s in _sides(planned)]
    verb = "Drops" if planned.inverted else "Keeps"
    if not limits:
        shown = ", ".join(f"{k}={v}" for k, v in planned.limits.items())
        return f'<p class="dim">{text(f"{planned.meaning} {shown}".strip(), 400)}</p>'
    sentence = f"{verb} documents with {what} of {' and '.join(limits)}."
    return f"<p>{text(sentence, 600)}</p>"


def _sources(facts: Facts, rule: RuleFacts) -> str:
    """Return the sources of which the rule took far more than of all documents, by the sample."""
    overall, sources = hit_by(facts.corpus, rule.stage, rule.name)
    if not sources:
        return ""
    names = ", ".join(f"{share:.0%} of {name}" for name, share in sources)
    return f'<p class="callout">{text(f"It took {names}, against {overall:.0%} of all documents (sample).", 600)}</p>'


def _sides(planned: PlannedRule) -> list[tuple[str, str]]:
    """Return the limits that are numbers, each with its side."""
    limits = planned.limits
    return [(n, s) for n, s in planned.sides.items() if is_number(limits.get(n)) and math.isfinite(limits[n])]


def _chart(rule: RuleFacts) -> str:
    if rule.table is None:
        return ""
    planned = rule.planned
    low, high = -math.inf, math.inf
    for name, side in _sides(planned) if planned is not None else []:
        assert planned is not None
        low, high = (planned.limits[name], high) if side == AT_LEAST else (low, planned.limits[name])
    marks = [limit for limit in (low, high) if math.isfinite(limit)]
    dropped = [(low, high)] if planned is not None and planned.inverted else [(-math.inf, low), (high, math.inf)]
    shade = [ends for ends in dropped if marks and ends[0] < ends[1]]
    bars = Bars("documents that reached the rule", rule.table["bins"], "k0")
    return histogram_chart(f"scores of {rule.name}", [bars], marks=marks, shade=shade, with_table=True)


def _slider(facts: Facts, rule: RuleFacts) -> str:
    """Return the command that asks for another limit, and a slider that counts what would pass the rule alone."""
    planned = rule.planned
    if planned is None or not _sides(planned):
        return ""
    output = output_of_run_dir(facts.run_dir.resolve())
    html = ""
    for name, side in _sides(planned):
        limit = planned.limits[name]
        target = f"{_address(facts, rule)}.{name}"
        shown = command("rethreshold", output, f"{target}={limit:g}")
        slide = ""
        if rule.table is not None and not planned.inverted:
            bins = [b for b in rule.table["bins"] if b[0] is not None or b[1] is not None]
            data = json.dumps({"bins": bins[:_MAX_STOPS], "side": side, "limit": limit, "name": name})
            shown_name = f"<code>{text(planned.parameter(name))}</code>"
            slide = (
                f"<div class=\"slide\" data-rule='{_single(data)}' hidden><label>another {shown_name} "
                '<input type="range" min="0" max="1" value="0"></label> <output></output></div>'
            )
        prefix, _, end = shown.rpartition("=")
        html += (
            f'<div class="limit-of">{slide}<p class="copy"><code data-start="{_attribute(prefix)}=" '
            f'data-end="{_attribute(end.lstrip("-0123456789.e+"))}">{text(shown, 400)}</code></p></div>'
        )
    note = "This rule alone: rules that follow have not seen what another limit lets pass."
    return f'<div class="limits">{html}<p class="dim">{note}</p></div>'


def _address(facts: Facts, rule: RuleFacts) -> str:
    """Return how `tamis rethreshold` names a rule: with its stage, if several stages have one of this name."""
    same = sum(r.name == rule.name for r in facts.rules)
    return f"{rule.stage}:{rule.name}" if same > 1 else rule.name


def _examples(facts: Facts, rule: RuleFacts) -> str:
    any_role, near_role = rule_roles(rule.stage, rule.name)
    selection, paths = facts.corpus.selection, facts.corpus.paths
    near = selection.of_role(near_role)
    near_keys = {s.key for s in near}
    random = [s for s in selection.of_role(any_role) if s.key not in near_keys] or selection.of_role(any_role)
    html = ""
    if random:
        html += f"<h3>At random</h3>{excerpts.rows_of(random, paths)}"
    if near:
        html += f"<h3>Nearest to the limit</h3>{excerpts.rows_of(near, paths)}"
    if not html:
        drop = next((d for d in facts.drops if (d.stage, d.reason) == (rule.stage, rule.name)), None)
        names = drop.examples if drop is not None else []
        html = "".join(f"<p><code>{text(quoted(name), 300)}</code></p>" for name in names)
    return html


def _attribute(value: str) -> str:
    return text(value, 800).replace('"', "&quot;")


def _single(value: str) -> str:
    return text(value, 40_000).replace("'", "&#39;")


def top_rule(rules: Sequence[RuleFacts]) -> RuleFacts | None:
    """Return the rule that dropped most documents."""
    return max((r for r in rules if r.documents), key=lambda r: r.documents, default=None)
