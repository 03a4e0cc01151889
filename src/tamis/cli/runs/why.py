"""`tamis why` and `tamis rethreshold`: answers from what a run stored, without reading all texts again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Option
from tamis.cli.terminal.show import count
from tamis.errors import UsageError
from tamis.sizes import format_size
from tamis.stores.urls import is_bucket

if TYPE_CHECKING:
    from tamis.cli.runs.rejudge import Estimate
    from tamis.observe.document_status import Whereabouts
    from tamis.observe.duplicates import Pair
    from tamis.observe.passages import Passage
    from tamis.observe.rule_margins import Margin
    from tamis.observe.thresholds import Rethreshold
    from tamis.observe.verdicts import OutputRow, PlannedRule, ThresholdChange, Verdict

_RULES_NAMED, _MARGINS, _PASSAGES = 8, 3, 8
Output = Annotated[str, Argument(help="Output folder of a run, or its run directory.")]


def why(
    output: Output,
    document: Annotated[
        str, Argument(help="The document's id, its place as FILE:OFFSET, or its id by place (000003_12345).")
    ],
    as_json: options.AsJson = False,
) -> None:
    """Explain why a document was dropped: rule, threshold, measured value, and the change that would keep it.

    The change is the smallest with which the rule keeps the document.

    The first rule that rejects a document drops it. Later rules never saw it; they are listed.

    For a duplicate: the document that was kept for it, how alike they are, and what differs, read from the
    input if it is still there. For repeated passages: where each begins and ends, and where its first copy is (name the
    document by its place).

    Example: tamis why clean/ doc-0000042
    """
    from tamis.cli.runs.passages import as_written
    from tamis.cli.terminal.show import print_json, print_lines
    from tamis.observe import duplicates
    from tamis.observe.passages import passages_of

    if not duplicates.has_verdicts(output) and (cuts := as_written(output, passages_of(output, document))):
        if as_json:
            print_json({"document": document, "written_to": None, "verdicts": [], "passages": _plain(cuts)})
        else:
            print_lines([f"{document} has repeated passages; this run removed nothing", *_passages(cuts)])
        return
    if (pair := duplicates.found_only(output, document)) is not None and not duplicates.has_verdicts(output):
        if as_json:
            print_json({"document": document, "written_to": None, "verdicts": [], "duplicates": [pair.to_dict()]})
        else:
            print_lines([f"{document} is a duplicate; this run removed nothing", *_duplicate(pair)])
        return
    if (shared := duplicates.overlaps_with_sets(output, document)) and not duplicates.has_verdicts(output):
        if as_json:
            print_json({"document": document, "written_to": None, "verdicts": [], "overlaps": shared})
        else:
            print_lines([f"{document} shares text with evaluation sets; this run removed nothing"])
            print_lines(line for row in shared for line in _overlap(row))
        return
    answer = _answer(output, document)
    if as_json:
        print_json(answer.to_dict())
    else:
        _print(answer)


@dataclass(frozen=True)
class _Change:
    """The change that would keep a document: the rule that dropped it, its smallest change, and the rules after it."""

    rule: PlannedRule | None
    smallest: ThresholdChange | None
    later: list[str] | None


@dataclass(frozen=True)
class _Answer:
    """Everything that a run stored about one document."""

    document: str
    verdicts: list[Verdict]
    changes: list[_Change]  # of each verdict
    pairs: list[Pair]  # one for each verdict on a duplicate
    written: OutputRow | None
    places: list[Whereabouts]
    margins: list[Margin]
    passages: list[Passage]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        verdicts = [
            {
                **v._asdict(),
                "kept_by_rule_with": None if c.smallest is None else str(c.smallest),
                "recipe": None if c.smallest is None else {c.smallest.stage: c.smallest.in_recipe},
                "not_evaluated": c.later,
            }
            for v, c in zip(self.verdicts, self.changes, strict=True)
        ]
        path = self.written.path if self.written is not None else None
        fields: dict[str, Any] = {"document": self.document, "written_to": path, "verdicts": verdicts}
        fields |= {"places": [asdict(p) for p in self.places]} if self.places else {}
        fields |= {"passages": _plain(self.passages)} if self.passages else {}
        fields |= {"scores": [asdict(m) for m in self.margins]} if self.margins else {}
        return fields | ({"duplicates": [p.to_dict() for p in self.pairs]} if self.pairs else {})


def _answer(output: str, document: str) -> _Answer:
    """Look a document up in what a run stored; raise UsageError if the run knows nothing of it."""
    from tamis.cli.runs.passages import as_written
    from tamis.observe import duplicates
    from tamis.observe.document_status import KEPT, NO_RECORD, whereabouts
    from tamis.observe.passages import passages_of
    from tamis.observe.rule_margins import margins_at, margins_of_row
    from tamis.observe.verdicts import find_written, rules_of, run_folder

    verdicts = duplicates.verdicts_on(output, document)
    pairs = [duplicates.pair_of(output, v) for v in verdicts if duplicates.is_duplicate(v)]
    written = find_written(output, document) if not verdicts else None
    places = whereabouts(output, duplicates.place_of(output, document)) if not verdicts and written is None else []
    if not verdicts and written is None and all(p.state == NO_RECORD for p in places):
        raise _unknown_document(output, document, places)
    folder = run_folder(output)
    rules = rules_of(folder)
    changes = [_change(v, rules) for v in verdicts]
    margins = margins_of_row(folder, written.path, written.row) if written is not None else []
    for place in places:
        margins += margins_at(folder, (place.file, place.offset)) if place.state == KEPT else []
    address = f"{verdicts[0].path}:{verdicts[0].offset}" if verdicts else document
    passages = as_written(output, passages_of(output, address))
    return _Answer(document, verdicts, changes, pairs, written, places, margins, passages)


def _change(verdict: Verdict, rules: list[PlannedRule] | None) -> _Change:
    from tamis.observe.verdicts import not_asked, rule_of

    rule = rule_of(verdict, rules)
    return _Change(rule, verdict.smallest_change(rule), not_asked(verdict, rules))


def _unknown_document(output: str, document: str, places: list[Whereabouts]) -> UsageError:
    """Return the error for a document that was neither dropped nor written, as far as is known."""
    from tamis.observe.verdicts import lacks_ids

    if not places and not is_bucket(output) and lacks_ids(output):
        return UsageError(
            f"no document {document!r} was dropped by this run; whether it was kept is only known by its place, "
            "because the output has no ids: name it as FILE:OFFSET"
        )
    return UsageError(
        f"no document {document!r} was dropped or written by this run; name it by its id, or by its place as "
        "FILE:OFFSET (bad input is listed by: tamis quarantine)"
        + (
            "; whether a document was kept cannot be looked up by its id in a bucket, only by its place"
            if is_bucket(output)
            else ""
        )
        + "".join(f"\n{p.path}:{p.offset} {p.sentence}" for p in places)
    )


def _print(answer: _Answer) -> None:
    from tamis.cli.terminal.show import print_lines
    from tamis.observe import duplicates

    document, written = answer.document, answer.written
    print_lines([f"{document} was kept: {written.path}"] if written is not None else [])
    print_lines(f"{p.path}:{p.offset} {p.sentence}" for p in answer.places)
    print_lines(_closest(answer.margins))
    pairs = iter(answer.pairs)
    for v, change in zip(answer.verdicts, answer.changes, strict=True):
        facts = _duplicate(next(pairs)) if duplicates.is_duplicate(v) else [*_measured(v, change), *_otherwise(change)]
        print_lines(
            [f"{v.id or document} was dropped by {v.rule}" + (f" (stage {v.stage})" if v.stage != v.rule else "")]
        )
        print_lines([f"  place:     {v.path}, offset {v.offset}", *facts])
    print_lines(_passages(answer.passages))


def _plain(passages: list[Passage]) -> list[dict[str, Any]]:
    return [passage.to_dict() for passage in passages]


def _passages(passages: list[Passage]) -> list[str]:
    """Describe the longest repeated passages of a document."""
    if not passages:
        return []
    n_bytes = sum(passage.end - passage.start for passage in passages)
    longest = sorted(passages, key=lambda passage: (passage.start - passage.end, passage.start))[:_PASSAGES]
    lines = [f"  {count(len(passages), 'repeated passage')}, {format_size(n_bytes)}"]
    lines += [f"    {passage.sentence}" for passage in longest]
    return lines + ([f"    and {len(passages) - _PASSAGES:,} shorter ones"] if len(passages) > _PASSAGES else [])


def _measured(v: Verdict, change: _Change) -> list[str]:
    value = f"{v.value:.6g}" if isinstance(v.value, float) else v.value
    lines = [f"  value:     {value}"] if value is not None else []
    if isinstance(value, dict) and {"set", "item", "words"} <= set(value) and isinstance(value.get("share"), float):
        lines = _measured_overlap(value)
    if isinstance(v.threshold, dict) and v.threshold:
        names = {k: change.rule.parameter(k) if change.rule is not None else k for k in v.threshold}
        is_switch = change.smallest is not None and change.smallest.is_switch
        limits = ", ".join(f"{k if is_switch else names[k]}={x}" for k, x in v.threshold.items())
        lines.append(f"  threshold: {limits}")
    elif v.threshold:
        lines.append(f"  threshold: {v.threshold}")
    return lines


def _overlap(row: dict[str, Any]) -> list[str]:
    """Describe what a document shares with one evaluation item."""
    head = f"  {row['set']} {row['item']}: a run of {row['words']} words, {row['share']:.0%} of the n-grams of the item"
    return [head, f"    {' '.join(str(row['item_text']).split())}"]


def _measured_overlap(value: Any) -> list[str]:
    """Describe the overlap for which a document was dropped."""
    words, share = value.get("words"), value.get("share")
    lines = [f"  set:       {value.get('set')}, item {value.get('item')}"]
    lines += [f"  shared:    a run of {words} words, {share:.0%} of the n-grams of the item"]
    return [*lines, f"  text:      {' '.join(str(value.get('text')).split())}"]


def _closest(margins: list[Margin]) -> list[str]:
    """Return the limits that a kept document came closest to."""
    lines = ["  closest to being dropped by:"] if margins else []
    for m in margins[:_MARGINS]:
        value = f"{m.low:g}" if m.low == m.high else f"{m.low:.4g} to {m.high:.4g}"
        lines.append(f"    {m.rule}: {value}, {m.side} {m.name}={m.limit:g}")
    return lines


def _otherwise(change: _Change) -> list[str]:
    """Describe what is known about the document under another threshold.

    The rules after the one that dropped it did not see it.
    """
    smallest, later = change.smallest, change.later
    if smallest is None:
        return []
    line = f"`{smallest.in_recipe}` for {smallest.stage} in the recipe"
    if later == []:
        return [f"  it would have been kept with {line}"]
    sentence = f"  this rule would have kept it with {line}"
    if later is None:
        return [sentence, "  whether later rules would have is not known"]
    names = ", ".join(later[:_RULES_NAMED]) + (
        f" and {len(later) - _RULES_NAMED} more" if len(later) > _RULES_NAMED else ""
    )
    return [sentence, f"  rules after it, which did not see this document and might also drop it: {names}"]


def _duplicate(pair: Pair) -> list[str]:
    """Describe the kept document, how alike the two are, and what differs."""
    from tamis.observe.duplicates import diff_lines

    alike = "not measured" if pair.similarity is None else f"{pair.similarity:.4f}"
    lines = [f"  kept:      {pair.kept.path}, offset {pair.kept.offset}", f"  similar:   {alike}"]
    if pair.threshold is not None:
        lines.append(f"  threshold: {pair.threshold}")
    for what, side in (("the removed document", pair.removed), ("the kept document", pair.kept)):
        if side.problem is not None:
            lines.append(f"  {what} cannot be shown: {side.problem}")
    if pair.removed.text is not None and pair.kept.text is not None:
        lines += ["", "--- kept", "+++ removed", *diff_lines(pair.kept.text, pair.removed.text)]
    return lines


def rethreshold(
    output: Output,
    change: Annotated[str, Argument(help="RULE=VALUE, RULE.LIMIT=VALUE, or PARAMETER=VALUE as in a recipe.")],
    judge: Annotated[
        int,
        Option(
            help="Take so many of the documents that would pass, chosen at random, through the rules again, and "
            "estimate how many of all the run would keep, with 95 % confidence. 0: none."
        ),
    ] = 400,
    allow_module: options.AllowModules = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what another threshold would do.

    Reports how many of the documents that a rule dropped would pass this rule alone, how many of those that were
    written it would drop, and their bytes.

    Later rules have not seen the documents that would pass, and may still drop them: a sample of these is read from
    the input and judged again by all rules. Deduplications cannot judge a document alone and are named. Scores of
    written documents are stored in two bytes each: some may be too close to the new threshold to decide, and both
    ends of the answer are given. PARAMETER is what a recipe calls a limit, such as line_punct_thr or
    fineweb_quality.line_punct_thr.

    Example: tamis rethreshold clean/ word_count.min_words=30
    """
    from tamis.cli.terminal.show import print_json, print_lines
    from tamis.observe import thresholds

    rule, separator, value = change.rpartition("=")
    try:
        new = float(value)
    except ValueError:
        separator = ""
    if not separator or not rule:
        raise UsageError(f"{change!r}: expected RULE=VALUE, e.g. word_count=30, or RULE.LIMIT=VALUE")
    result = thresholds.rethreshold(output, *thresholds.find_limit(output, rule), new)
    estimate, why_not = _estimate(output, result, judge, tuple(allow_module or ()))
    if as_json:
        print_json({**asdict(result), "estimate": None if estimate is None else asdict(estimate)})
    else:
        print_lines(_rethreshold_lines(result, estimate, why_not))


def _estimate(output: str, result: Rethreshold, n: int, modules: tuple[str, ...]) -> tuple[Estimate | None, str]:
    """Return how many documents the run would keep, or why that is not known."""
    from tamis.cli.jobs.jobs import Consent
    from tamis.cli.runs import rejudge

    if not result.n_back or n < 1 or result.later_rules == []:
        return None, ""
    try:
        return rejudge.estimate(output, result, n, Consent(modules)), ""
    except UsageError as exc:
        return None, str(exc)


def _rethreshold_lines(r: Rethreshold, estimate: Estimate | None = None, why_not: str = "") -> list[str]:
    lines = [f"{r.rule}: {r.parameter}={r.old:g} dropped {count(r.n_dropped, 'document')}{_size(r.dropped_bytes)}"]
    if r.n_dropped:
        size = f", {format_size(r.back_bytes)}" if r.dropped_bytes else ""
        lines.append(
            f"{r.parameter}={r.new:g}: {r.n_back:,} of them pass this rule ({r.n_back / r.n_dropped:.1%}{size})"
        )
        lines += _judged(r, estimate) if estimate is not None else _later(r) if r.n_back else []
        lines += [why_not] if why_not else []
    if r.n_written is None:
        return [*lines, "what it would drop of the others is not known: this run did not store their scores"]
    most, most_bytes = r.n_lost + r.n_unsure, r.lost_bytes + r.unsure_bytes
    n, share, size = f"{r.n_lost:,}", f"{r.n_lost / max(r.n_written, 1):.1%}", format_size(r.lost_bytes)
    if r.n_unsure:
        n, share = f"{n} to {most:,}", f"{share} to {most / max(r.n_written, 1):.1%}"
        size = f"{size} to {format_size(most_bytes)}"
    return [
        *lines,
        f"{r.parameter}={r.new:g} would drop {n} of the {r.n_written:,} documents written ({share}, {size})",
    ]


def _judged(r: Rethreshold, estimate: Estimate) -> list[str]:
    """Say how many of the documents that pass the run would keep, judged by a sample of them."""
    of = "all" if estimate.n_judged == r.n_back else f"{estimate.n_judged:,}"
    kept = f"{estimate.low:,}" if estimate.low == estimate.high else f"{estimate.low:,} to {estimate.high:,} (95 %)"
    lines = [f"later rules would keep {kept} of these: {of} were judged again, {estimate.n_kept:,} of them stayed"]
    if estimate.left_out:
        lines.append(f"without {', '.join(estimate.left_out)}: documents are not compared with each other here")
    return lines


def _later(r: Rethreshold) -> list[str]:
    """Say how much is unknown about the documents that pass: later rules have not seen them."""
    if r.later_rules is None:
        return ["later rules have not seen them and may drop them"]
    if not r.later_rules:
        return ["no later rule follows: they would be kept"]
    n = len(r.later_rules)
    names = ", ".join(r.later_rules[:_RULES_NAMED]) + (", ..." if n > _RULES_NAMED else "")
    return [f"{count(n, 'later rule')} ({names}) {'have' if n > 1 else 'has'} not seen them and may drop them"]


def _size(n_bytes: int) -> str:
    return f" ({format_size(n_bytes)})" if n_bytes else ""
