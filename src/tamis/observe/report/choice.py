"""The part of the page about choosing and mixing: buckets with their edges, and groups of a mix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tamis.engine.ledger import Ledger
from tamis.observe import choice_tables
from tamis.observe.charts.svg import text
from tamis.observe.charts.tables import folded_table, table
from tamis.observe.choice_tables import BucketGroup, BucketTable, MixGroup, ScoreRange, TopChoice

_MAX_ROWS, _MAX_GROUPS = 200, 200
_WRITTEN = "written "


def choice(run_dir: Path, ledger: Ledger | None) -> str:
    """Return a table for each step that made buckets or a mix; "" if there is none or it cannot be read."""
    folder = run_dir / "duplicates"
    written = _written(ledger)
    return "".join(
        [
            *(_scores(step, ranges) for step, ranges in choice_tables.read_scores(folder)),
            *(_buckets(step, buckets, written) for step, buckets in choice_tables.read_buckets(folder)),
            *(_top(step, best) for step, best in choice_tables.read_tops(folder)),
            *(_mix(step, mix) for step, mix in choice_tables.read_mixes(folder)),
        ]
    )


def _written(ledger: Ledger | None) -> dict[str, float]:
    """Return the documents that were written of each bucket, by its number."""
    metrics = {key: n for book in ledger.stages for key, n in book.metrics.items()} if ledger is not None else {}
    found = ((key.rpartition("=")[2], n) for key, n in metrics.items() if key.startswith(_WRITTEN) and "=" in key)
    return dict(found)


def _scores(step: str, ranges: Sequence[ScoreRange]) -> str:
    rows = [
        [text(one.name, 100), f"{one.n:,}", *(_figure(value) for value in (one.low, one.mean, one.high))]
        for one in ranges[:_MAX_ROWS]
    ]
    return _head(step, "scores") + table(["score", "documents with it", "lowest", "mean", "highest"], rows, range(1, 5))


def _buckets(step: str, buckets: BucketTable, written: Mapping[str, float]) -> str:
    columns = ["bucket", "score", "documents", buckets.weight, "share", "documents written"]
    note = (
        f'<p class="dim">Buckets of about equal {text(buckets.weight, 20)} by {_names(buckets.scores)}, as far as '
        f"equal scores allow; {buckets.n_without_score:,} documents have no score.</p>"
    )
    rows = _bucket_rows(buckets.groups, written)
    return _head(step, "buckets") + table(columns, rows, range(2, 6)) + note + _edges_of(buckets.groups)


def _bucket_rows(groups: Sequence[BucketGroup], written: Mapping[str, float]) -> list[list[str]]:
    """Return a row for each bucket, summed over the groups; scores are shown where there is one group alone."""
    counts = [sum(ns) for ns in zip(*(g.n_documents for g in groups), strict=False)]
    weights = [sum(ws) for ws in zip(*(g.weight for g in groups), strict=False)]
    total = sum(weights) or 1.0
    edges = groups[0].edges if len(groups) == 1 else []
    ends = [None, *edges, None] if len(edges) == len(counts) - 1 else [None] * (len(counts) + 1)
    rows = []
    for i, (n, w) in enumerate(list(zip(counts, weights, strict=False))[:_MAX_ROWS]):
        n_written = f"{int(written.get(str(i), 0.0)):,}" if written else ""
        rows.append([str(i), _range(ends[i], ends[i + 1]), f"{n:,}", f"{w:,}", f"{w / total:.2%}", n_written])
    return rows


def _edges_of(groups: Sequence[BucketGroup]) -> str:
    """Return the edges of groups that have buckets of their own; "" for a single one, whose edges are shown."""
    if len(groups) < 2:
        return ""
    rows = [
        [
            text(g.group or "(no value)", 100),
            f"{sum(g.n_documents):,}",
            ", ".join(f"{edge:.6g}" for edge in g.edges[:_MAX_ROWS]),
        ]
        for g in groups[:_MAX_GROUPS]
    ]
    return folded_table("edges of each group", ["group", "documents", "edges"], rows, (1,))


def _top(step: str, best: TopChoice) -> str:
    columns = ["score", "lowest kept", "documents kept", f"{best.weight} kept", "share"]
    share = f"{best.weight_kept / (best.weight_of_all or 1):.2%}"
    row = [_names(best.scores), _figure(best.lowest_score), f"{best.n_kept:,}", f"{best.weight_kept:,}", share]
    return _head(step, "the best") + table(columns, [row], range(1, 5))


def _mix(step: str, groups: Sequence[MixGroup]) -> str:
    total = sum(g.tokens_written for g in groups)
    ranked = sorted(groups, key=lambda g: -g.tokens_written)
    rows = [
        [
            text(g.group or "(no value)", 100),
            f"{g.n_documents:,}",
            f"{g.tokens:,}",
            f"{g.epochs:.3f}",
            f"{g.n_written:,}",
            f"{g.tokens_written:,}",
            f"{g.tokens_written / (total or 1):.2%}",
        ]
        for g in ranked[:_MAX_ROWS]
    ]
    columns = ["group", "documents", "tokens", "epochs", "documents written", "tokens written", "share"]
    more = f"{len(ranked) - _MAX_ROWS:,} groups with fewer tokens are not shown. " if len(ranked) > _MAX_ROWS else ""
    note = f'<p class="dim">{more}{total:,} tokens in all.</p>'
    return _head(step, "mix") + table(columns, rows, range(1, 7)) + note


def _head(step: str, otherwise: str) -> str:
    return f"<h3>{text(step or otherwise, 100)}</h3>"


def _names(scores: Sequence[str]) -> str:
    return ", ".join(text(score, 100) for score in scores)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if low is None:
        return f"to {high:.6g}"
    return f"above {low:.6g}" if high is None else f"{low:.6g} to {high:.6g}"
