"""`tamis why` and `tamis rethreshold`: answers from what a run stored, without reading all texts again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument
from tamis.cli.terminal.show import count
from tamis.errors import UsageError
from tamis.sizes import format_size
from tamis.stores.urls import is_bucket

if TYPE_CHECKING:
    from tamis.observe.document_status import Whereabouts
    from tamis.observe.duplicates import Pair
    from tamis.observe.margins import Margin
    from tamis.observe.thresholds import Rethreshold
    from tamis.observe.verdicts import OutputRow, Verdict

_RULES_NAMED, _MARGINS = 8, 3
Output = Annotated[str, Argument(help="Output folder of a run.")]


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
    input if it is still there.

    Example: tamis why clean/ doc-0000042
    """
    from tamis.cli.terminal.show import print_json, print_lines
    from tamis.observe import duplicates

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
class _Answer:
    """Everything that a run stored about one document."""

    document: str
    verdicts: list[Verdict]
    changes: list[tuple[str | None, list[str] | None]]  # of each verdict: the smallest change, the rules after it
    pairs: list[Pair]  # one for each verdict on a duplicate
    written: OutputRow | None
    places: list[Whereabouts]
    margins: list[Margin]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        verdicts = [
            {**asdict(v), "kept_by_rule_with": change, "not_evaluated": later}
            for v, (change, later) in zip(self.verdicts, self.changes, strict=True)
        ]
        path = self.written.path if self.written is not None else None
        fields: dict[str, Any] = {"document": self.document, "written_to": path, "verdicts": verdicts}
        fields |= {"places": [asdict(p) for p in self.places]} if self.places else {}
        fields |= {"scores": [asdict(m) for m in self.margins]} if self.margins else {}
        return fields | ({"duplicates": [p.to_dict() for p in self.pairs]} if self.pairs else {})


def _answer(output: str, document: str) -> _Answer:
    """Look a document up in what a run stored; raise UsageError if the run knows nothing of it."""
    from tamis.observe import duplicates
    from tamis.observe.document_status import KEPT, NO_RECORD, whereabouts
    from tamis.observe.margins import margins_at, margins_of_row
    from tamis.observe.verdicts import find_written, not_asked, rule_of, rules_of, run_folder

    verdicts = duplicates.verdicts_on(output, document)
    pairs = [duplicates.pair_of(output, v) for v in verdicts if duplicates.is_duplicate(v)]
    written = find_written(output, document) if not verdicts else None
    places = whereabouts(output, duplicates.place_of(output, document)) if not verdicts and written is None else []
    if not verdicts and written is None and all(p.state == NO_RECORD for p in places):
        raise _unknown_document(output, document, places)
    folder = run_folder(output)
    rules = rules_of(folder)
    changes = [(v.smallest_change(rule_of(v, rules)), not_asked(v, rules)) for v in verdicts]
    margins = margins_of_row(folder, written.path, written.row) if written is not None else []
    for place in places:
        margins += margins_at(folder, (place.file, place.offset)) if place.state == KEPT else []
    return _Answer(document, verdicts, changes, pairs, written, places, margins)


def _unknown_document(output: str, document: str, places: list[Whereabouts]) -> UsageError:
    """Return the error for a document that was neither dropped nor written."""
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
    for v, (change, later) in zip(answer.verdicts, answer.changes, strict=True):
        facts = _duplicate(next(pairs)) if duplicates.is_duplicate(v) else [*_measured(v), *_otherwise(change, later)]
        print_lines(
            [f"{v.id or document} was dropped by {v.rule}" + (f" (stage {v.stage})" if v.stage != v.rule else "")]
        )
        print_lines([f"  place:     {v.path}, offset {v.offset}", *facts])


def _measured(v: Verdict) -> list[str]:
    is_overlap = isinstance(v.value, dict) and {"set", "item", "words", "share"} <= set(v.value)
    if is_overlap and isinstance(v.value["share"], (int, float)):
        lines = _measured_overlap(v.value)
    else:
        lines = [f"  value:     {v.value}"] if v.value is not None else []
    if v.threshold:
        limits = ", ".join(f"{k}={x}" for k, x in v.threshold.items()) if isinstance(v.threshold, dict) else v.threshold
        lines.append(f"  threshold: {limits}")
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


def _otherwise(change: str | None, later: list[str] | None) -> list[str]:
    """Describe what is known about the document under another threshold.

    The rules after the one that dropped it did not see it.
    """
    if change is None:
        return []
    if later == []:
        return [f"  it would have been kept with {change}"]
    kept = f"  this rule would have kept it with {change}"
    if later is None:
        return [kept, "  whether later rules would have is not known"]
    names = ", ".join(later[:_RULES_NAMED]) + (
        f" and {len(later) - _RULES_NAMED} more" if len(later) > _RULES_NAMED else ""
    )
    return [kept, f"  rules after it, which did not see this document and might also drop it: {names}"]


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
    change: Annotated[str, Argument(help="RULE=VALUE, or RULE.LIMIT=VALUE for a rule with several limits.")],
    as_json: options.AsJson = False,
) -> None:
    """Show what another threshold would do, without reading any text again.

    Reports how many of the documents that a rule dropped would pass this rule alone, how many of those that were
    written it would drop, and their bytes.

    Later rules have not seen the documents that would pass, and may still drop them: they are named. Scores of
    written documents are stored in two bytes each: some may be too close to the new threshold to decide, and both
    ends of the answer are given.

    Example: tamis rethreshold clean/ word_count.min_words=30
    """
    from tamis.cli.terminal.show import print_json, print_lines
    from tamis.observe import thresholds

    rule, found, value = change.rpartition("=")
    try:
        new = float(value)
    except ValueError:
        found = ""
    if not found or not rule:
        raise UsageError(f"{change!r}: expected RULE=VALUE, e.g. word_count=30, or RULE.LIMIT=VALUE")
    try:
        result = thresholds.rethreshold(output, rule, None, new)
    except UsageError:
        head, dot, limit = rule.rpartition(".")
        if not dot:
            raise
        result = thresholds.rethreshold(output, head, limit, new)
    if as_json:
        print_json(asdict(result))
    else:
        print_lines(_rethreshold_lines(result))


def _rethreshold_lines(r: Rethreshold) -> list[str]:
    lines = [f"{r.rule}: {r.name}={r.old:g} dropped {count(r.n_dropped, 'document')}{_size(r.dropped_bytes)}"]
    if r.n_dropped:
        size = f", {format_size(r.back_bytes)}" if r.dropped_bytes else ""
        lines.append(f"{r.name}={r.new:g}: {r.n_back:,} of them pass this rule ({r.n_back / r.n_dropped:.1%}{size})")
        lines += _later(r) if r.n_back else []
    if r.n_written is None:
        return [*lines, "what it would drop of the others is not known: this run did not store their scores"]
    most, most_bytes = r.n_lost + r.n_unsure, r.lost_bytes + r.unsure_bytes
    n, share, size = f"{r.n_lost:,}", f"{r.n_lost / max(r.n_written, 1):.1%}", format_size(r.lost_bytes)
    if r.n_unsure:
        n, share = f"{n} to {most:,}", f"{share} to {most / max(r.n_written, 1):.1%}"
        size = f"{size} to {format_size(most_bytes)}"
    return [*lines, f"{r.name}={r.new:g} would drop {n} of the {r.n_written:,} documents written ({share}, {size})"]


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
