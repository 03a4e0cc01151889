"""The part of the page about choosing and mixing: buckets with their edges, and groups of a mix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tamis.engine.ledger import Ledger
from tamis.files import read_json
from tamis.observe.charts.svg import number, text
from tamis.observe.charts.tables import folded_table, table

_SCORES, _BUCKETS, _TOP, _MIX = "scores.json", "buckets.json", "top.json", "mix.json"
_MAX_TABLES, _MAX_ROWS, _MAX_GROUPS = 10, 200, 200
_MAX_BYTES = 4_000_000
_WRITTEN = "written "


def choice(run_dir: Path, ledger: Ledger | None) -> str:
    """Return a table for each step that made buckets or a mix; "" if there is none or it cannot be read."""
    folder = run_dir / "duplicates"
    written = _written(ledger)
    buckets = (_buckets(path.name, _read(path), written) for path in sorted(folder.glob(f"*{_BUCKETS}"))[:_MAX_TABLES])
    mixes = (_mix(path.name, _read(path)) for path in sorted(folder.glob(f"*{_MIX}"))[:_MAX_TABLES])
    scores = (_scores(path.name, _read(path)) for path in sorted(folder.glob(f"*{_SCORES}"))[:_MAX_TABLES])
    best = (_top(path.name, _read(path)) for path in sorted(folder.glob(f"*{_TOP}"))[:_MAX_TABLES])
    return "".join([*scores, *buckets, *best, *mixes])


def _read(path: Path) -> Any:
    try:
        return read_json(path) if path.stat().st_size <= _MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None


def _written(ledger: Ledger | None) -> dict[str, float]:
    """Return the documents that were written of each bucket, by its number."""
    metrics = {key: n for book in ledger.stages for key, n in book.metrics.items()} if ledger is not None else {}
    found = ((key.rpartition("=")[2], n) for key, n in metrics.items() if key.startswith(_WRITTEN) and "=" in key)
    return dict(found)


def _scores(name: str, about: Any) -> str:
    listed = about.get("scores") if isinstance(about, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        return ""
    rows = [
        [text(one.get("name"), 100), _n(number(one.get("n"))), *(_figure(one.get(k)) for k in ("low", "mean", "high"))]
        for one in listed[:_MAX_ROWS]
    ]
    head = f"<h3>{text(name.removesuffix(_SCORES).rstrip('-') or 'scores', 100)}</h3>"
    return head + table(["score", "documents with it", "lowest", "mean", "highest"], rows, range(1, 5))


def _figure(value: Any) -> str:
    return "" if value is None else f"{number(value):.6g}"


def _buckets(name: str, about: Any, written: Mapping[str, float]) -> str:
    groups = about.get("groups") if isinstance(about, dict) else None
    if not isinstance(groups, list) or not all(isinstance(g, dict) for g in groups):
        return ""
    weight = str(about.get("weight"))
    scores = ", ".join(text(s, 100) for s in about.get("scores") or () if isinstance(s, str))
    what = text(weight, 20)
    head = f"<h3>{text(name.removesuffix(_BUCKETS).rstrip('-') or 'buckets', 100)}</h3>"
    columns = ["bucket", "score", "documents", weight, "share", "documents written"]
    note = (
        f'<p class="dim">Buckets of about equal {what} by {scores}, as far as equal scores allow; '
        f"{_n(number(about.get('n_without_score')))} documents have no score.</p>"
    )
    return head + table(columns, _bucket_rows(groups, written), range(2, 6)) + note + _edges_of(groups)


def _bucket_rows(groups: Sequence[Mapping[str, Any]], written: Mapping[str, float]) -> list[list[str]]:
    """Return a row for each bucket, summed over the groups; scores are shown where there is one group alone."""
    counts = _summed([g.get("n_documents") for g in groups])
    weights = _summed([g.get("weight") for g in groups])
    total = sum(weights) or 1.0
    edges = _numbers(groups[0].get("edges")) if len(groups) == 1 else []
    ends = [None, *edges, None] if len(edges) == len(counts) - 1 else [None] * (len(counts) + 1)
    rows = []
    for i, (n, w) in enumerate(list(zip(counts, weights, strict=False))[:_MAX_ROWS]):
        n_written = _n(written.get(str(i), 0.0)) if written else ""
        rows.append([str(i), _range(ends[i], ends[i + 1]), _n(n), _n(w), f"{w / total:.2%}", n_written])
    return rows


def _edges_of(groups: Sequence[Mapping[str, Any]]) -> str:
    """Return the edges of groups that have buckets of their own; "" for a single one, whose edges are shown."""
    if len(groups) < 2:
        return ""
    rows = [
        [
            text(g.get("group") or "(no value)", 100),
            _n(sum(_numbers(g.get("n_documents")))),
            ", ".join(f"{e:.6g}" for e in _numbers(g.get("edges"))[:_MAX_ROWS]),
        ]
        for g in groups[:_MAX_GROUPS]
    ]
    return folded_table("edges of each group", ["group", "documents", "edges"], rows, (1,))


def _top(name: str, about: Any) -> str:
    if not isinstance(about, dict):
        return ""
    total, kept = (number(about.get(name)) for name in ("weight_of_all", "weight_kept"))
    scores = ", ".join(text(s, 100) for s in about.get("scores") or () if isinstance(s, str))
    lowest, share = _figure(about.get("lowest_score")), f"{kept / (total or 1):.2%}"
    columns = ["score", "lowest kept", "documents kept", f"{about.get('weight')} kept", "share"]
    rows = [[scores, lowest, _n(number(about.get("n_kept"))), _n(kept), share]]
    head = f"<h3>{text(name.removesuffix(_TOP).rstrip('-') or 'the best', 100)}</h3>"
    return head + table(columns, rows, range(1, 5))


def _mix(name: str, groups: Any) -> str:
    if not isinstance(groups, list) or not all(isinstance(g, dict) for g in groups):
        return ""
    total = sum(number(g.get("tokens_written")) for g in groups) or 1.0
    ranked = sorted(groups, key=lambda g: -number(g.get("tokens_written")))
    rows = [
        [
            text(g.get("group") or "(no value)", 100),
            _n(number(g.get("n_documents"))),
            _n(number(g.get("tokens"))),
            f"{number(g.get('epochs')):.3f}",
            _n(number(g.get("n_written"))),
            _n(number(g.get("tokens_written"))),
            f"{number(g.get('tokens_written')) / total:.2%}",
        ]
        for g in ranked[:_MAX_ROWS]
    ]
    columns = ["group", "documents", "tokens", "epochs", "documents written", "tokens written", "share"]
    head = f"<h3>{text(name.removesuffix(_MIX).rstrip('-') or 'mix', 100)}</h3>"
    more = f"{len(ranked) - _MAX_ROWS:,} groups with fewer tokens are not shown. " if len(ranked) > _MAX_ROWS else ""
    return head + table(columns, rows, range(1, 7)) + f'<p class="dim">{more}{_n(total)} tokens in all.</p>'


def _summed(columns: Sequence[Any]) -> list[float]:
    read = [_numbers(column) for column in columns]
    return [sum(values) for values in zip(*read, strict=False)]


def _numbers(values: Any) -> list[float]:
    return [number(value) for value in values] if isinstance(values, list) else []


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if low is None:
        return f"to {high:.6g}"
    return f"above {low:.6g}" if high is None else f"{low:.6g} to {high:.6g}"


def _n(value: float) -> str:
    return f"{int(value):,}"
