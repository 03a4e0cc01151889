"""The decision of a choice by scores: edges of buckets, or the score down to which documents are kept."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tamis import files
from tamis.dedup import state
from tamis.dedup.position_table import PositionTable
from tamis.dedup.quantiles.choice import MOST_GROUPS, N_RANKS, Edges, GroupEdges, ScoreChoice, load_edges
from tamis.dedup.quantiles.mixing import epochs_of
from tamis.dedup.quantiles.side_scores import SideScores
from tamis.dedup.quantiles.weighted import NO_KEY, keys_of, numbers_of, smallest_reaching, totals_of
from tamis.dedup.records import Records
from tamis.engine.wire import to_json
from tamis.errors import UsageError
from tamis.observe.choice_tables import (
    BucketGroup,
    BucketTable,
    MixGroup,
    ScoreRange,
    TopChoice,
    write_buckets,
    write_mix,
    write_scores,
    write_top,
)
from tamis.stores.scratch_files import resolve
from tamis.stores.urls import path_text

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import DecideBuckets, DecideMix, DecideTop, KeepScores

Array = NDArray[Any]
# Documents of each group that are looked at to come close to its tokens.
_LEAST_NEXT, _MOST_NEXT, _MOST_NEXT_OF_ALL = 64, 4096, 1 << 20
_NONE = tuple(np.empty(0, np.int64) for _ in range(5))
EDGES, SCORES = "edges.json", "scores.parquet"


def keep_scores(step: KeepScores, run: SolverRun) -> None:
    """List the scores of every document; those of an earlier run also by position, for the stage that adds them."""
    side = _side_scores(step.choice, run)
    scored = _ScoredRecords(Records(run.task.records), step.choice, False, side)
    os.makedirs(run.task.duplicates, exist_ok=True)
    names = step.choice.scores
    table = _table(run, {"file": "<i4", "offset": "<i8", **{f"score_{k}": "<f4" for k in range(len(names))}})
    sums = [_ScoreSum(name) for name in names]
    n_without = 0
    with _ScoreTable(os.path.join(run.task.duplicates, SCORES), step.choice, run.paths()) as kept:
        for part in scored.parts():
            known = np.logical_or.reduce([~np.isnan(score) for score in part.scores])
            n_without += len(known) - int(known.sum())
            for one, values in zip(sums, part.scores, strict=True):
                one.add(values)
            if side is not None:
                rows = np.flatnonzero(known)
                columns = {f"score_{k}": score[rows] for k, score in enumerate(part.scores)}
                table.add(file=part.file[rows], offset=part.offset[rows], **columns)
            kept.add(part)
    table.close()
    ranges = [one.range() for one in sums]
    write_scores(run.task.duplicates, ranges)
    run.state.summary.write(
        {
            "n_documents": len(scored.records),
            "n_duplicates": 0,
            "n_without_score": n_without,
            "scores": [to_json(score) for score in ranges],
        }
    )


@dataclass
class _ScoreSum:
    """The number, the range and the mean of one score."""

    name: str
    n: int = 0
    total: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    def add(self, values: Array) -> None:
        values = values[~np.isnan(values)].astype(np.float64)
        if len(values):
            self.n, self.total = self.n + len(values), self.total + float(values.sum())
            self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    def range(self) -> ScoreRange:
        return (
            ScoreRange(self.name, self.n, self.low, self.high, self.total / self.n) if self.n else ScoreRange(self.name)
        )


def decide_buckets(step: DecideBuckets, run: SolverRun) -> None:
    """Find the edges of the buckets, or read them, and write the bucket of every document."""
    side = _side_scores(step.choice, run)
    scored = _ScoredRecords(Records(run.task.records), step.choice, step.by is not None, side)
    os.makedirs(run.task.duplicates, exist_ok=True)
    edges = load_edges(step.edges) if step.edges else _find_edges(scored, step, run)
    names = [group.name for group in edges.groups]
    scored.use_ranks(edges, names)
    number_of = {name: i for i, name in enumerate(names)}
    known = np.array([number_of.get(name, -1) for name in scored.names], np.int64)
    counts = np.zeros((max(1, len(names)), edges.n), np.int64)
    weights = np.zeros_like(counts)
    n_without = 0
    table = _table(run, {"file": "<i4", "offset": "<i8", "bucket": "<i4"})
    bounds = [keys_of(np.array(group.edges, np.float32)) for group in edges.groups]
    with _ScoreTable(os.path.join(run.task.duplicates, SCORES), step.choice, run.paths()) as kept:
        for part in scored.parts():
            group, bucket = known[part.group], np.full(len(part.key), -1, np.int64)
            for g in np.unique(group[group >= 0]).tolist():
                rows = np.flatnonzero((group == g) & (part.key != NO_KEY))
                bucket[rows] = np.searchsorted(bounds[g], part.key[rows], side="left")
            rows = np.flatnonzero(bucket >= 0)
            np.add.at(counts, (group[rows], bucket[rows]), 1)
            np.add.at(weights, (group[rows], bucket[rows]), part.weight[rows])
            n_without += len(bucket) - len(rows)
            table.add(file=part.file[rows], offset=part.offset[rows], bucket=bucket[rows])
            kept.add(part)
    table.close()
    files.write_json(os.path.join(run.task.duplicates, EDGES), state.to_dict(edges), indent=1, mode=0o666)
    groups = [
        BucketGroup(group.name, counts[i].tolist(), weights[i].tolist(), group.edges)
        for i, group in enumerate(edges.groups)
    ]
    write_buckets(run.task.duplicates, BucketTable(step.choice.weight, step.choice.scores, n_without, groups))
    run.state.summary.write(
        {
            "n_documents": len(scored.records),
            "n_duplicates": 0,
            "n_without_score": n_without,
            "buckets": [{"group": g.group, "n_documents": g.n_documents, "weight": g.weight} for g in groups],
        }
    )


def decide_top(step: DecideTop, run: SolverRun) -> None:
    """Find the score down to which documents fit into the limit; of those with just that score, the first ones stay."""
    scored = _ScoredRecords(Records(run.task.records), step.choice, False, _side_scores(step.choice, run))
    os.makedirs(run.task.duplicates, exist_ok=True)
    if step.choice.is_ranked:
        scored.use_ranks(Edges(1, step.choice, None, [], _rank_edges(scored, run)), scored.names)
    _, totals = totals_of(scored.chunks, 1)
    total = int(totals[0])
    limit = step.limit.amount if step.limit.amount is not None else int(float(step.limit.fraction or 0) * total)
    most = min(limit, total)
    lowest = 0
    if 0 < most < total:
        lowest = int(smallest_reaching(scored.chunks, np.array([[total - most + 1]]), run.room_bytes)[0, 0])
    elif not most:
        lowest = NO_KEY
    above = sum(int(w[(k > lowest) & (k != NO_KEY)].sum()) for _, k, w in scored.chunks())
    n_dropped, kept_weight, is_full = 0, above, False
    table = _table(run, {"file": "<i4", "offset": "<i8", "score": "<f4"})
    for part in scored.parts():
        keep = (part.key > lowest) & (part.key != NO_KEY)
        tied = np.flatnonzero((part.key == lowest) & (part.key != NO_KEY))
        if len(tied) and not is_full:
            fits = kept_weight + np.cumsum(part.weight[tied]) <= most
            n_fit = len(tied) if fits.all() else int(np.argmin(fits))
            keep[tied[:n_fit]] = True
            kept_weight += int(part.weight[tied[:n_fit]].sum())
            is_full = n_fit < len(tied)
        rows = np.flatnonzero(~keep)
        n_dropped += len(rows)
        table.add(file=part.file[rows], offset=part.offset[rows], score=part.score[rows])
    table.close()
    lowest_score = float(numbers_of(np.array([lowest]))[0]) if 0 < most < total else None
    n_kept = len(scored.records) - n_dropped
    chosen = TopChoice(step.choice.scores, step.choice.weight, n_kept, lowest_score, total, kept_weight)
    write_top(run.task.duplicates, chosen)
    run.state.summary.write(
        {
            "n_documents": len(scored.records),
            "n_duplicates": n_dropped,
            "lowest_score": lowest_score,
            "weight_of_all": total,
            "weight_kept": kept_weight,
        }
    )


def decide_mix(step: DecideMix, run: SolverRun) -> None:
    """Find how often the documents of each group are written; store it for documents not written exactly once."""
    scored = _ScoredRecords(Records(run.task.records), ScoreChoice(["draw"]), True)
    os.makedirs(run.task.duplicates, exist_ok=True)
    counts, tokens = totals_of(scored.draws, len(scored.names))
    epochs = epochs_of(step.rule, scored.names, tokens.tolist())
    whole = np.floor(np.array(epochs) + 1e-12).astype(np.int64)
    parts = np.rint((np.array(epochs) - whole).clip(0) * tokens).astype(np.int64)
    # Of those that are drawn, documents up to this number get one more copy.
    drawn = np.flatnonzero(parts > 0)
    last = np.full(len(epochs), -1, np.int64)
    position = np.full(len(epochs), -1, np.int64)
    position[drawn] = np.arange(len(drawn))

    def mine() -> Iterator[tuple[Array, Array, Array]]:
        for group, key, weight in scored.draws():
            at = position[group]
            yield np.maximum(at, 0), np.where(at < 0, np.uint32(NO_KEY), key), weight

    # The document that reaches the amount is left out, and what is missing then made up of later ones that fit.
    last[drawn] = smallest_reaching(mine, parts[drawn].reshape(-1, 1), run.room_bytes)[:, 0].astype(np.int64) - 1
    more = _fitting(scored, last, parts, counts)
    written, n_copies = np.zeros(len(epochs), np.int64), np.zeros(len(epochs), np.int64)
    table = _table(run, {"file": "<i4", "offset": "<i8", "copies": "<u4"})
    for file, offset, group, draw, weight in scored.positions():
        is_drawn = (draw.astype(np.int64) <= last[group]) | np.isin(_places(file, offset), more)
        copies = whole[group] + is_drawn
        np.add.at(written, group, copies * weight)
        np.add.at(n_copies, group, copies)
        rows = np.flatnonzero(copies != 1)
        table.add(file=file[rows], offset=offset[rows], copies=copies[rows])
    table.close()
    mix = [
        MixGroup(
            group=name,
            n_documents=int(counts[i]),
            tokens=int(tokens[i]),
            epochs=round(float(epochs[i]), 6),
            n_written=int(n_copies[i]),
            tokens_written=int(written[i]),
        )
        for i, name in enumerate(scored.names)
    ]
    write_mix(run.task.duplicates, mix)
    run.state.summary.write(
        {
            "n_documents": len(scored.records),
            "n_duplicates": 0,
            "mix": [to_json(group) for group in mix],
            "tokens_written": int(written.sum()),
        }
    )


def _fitting(scored: _ScoredRecords, last: Array, parts: Array, counts: Array) -> Array:
    """Return the places of documents that make up what is missing of `parts` after those drawn up to `last`.

    Of each group the documents with the next numbers, each if it is no larger than what is missing then: groups come
    close to their tokens, and all of them together closer than the size of a document.
    """
    most = max(_LEAST_NEXT, min(_MOST_NEXT, _MOST_NEXT_OF_ALL // max(1, len(last))))
    width = np.minimum(NO_KEY, most * (1 << 32) // np.maximum(counts, 1)).astype(np.int64)
    is_partial = parts > 0
    missing = parts.copy()
    found: list[tuple[Array, ...]] = []
    for file, offset, group, draw, weight in scored.positions():
        number = draw.astype(np.int64)
        np.subtract.at(missing, group, np.where(is_partial[group] & (number <= last[group]), weight, 0))
        rows = np.flatnonzero(is_partial[group] & (number > last[group]) & (number <= last[group] + width[group]))
        found.append((group[rows], number[rows], file[rows], offset[rows], weight[rows]))
    group, number, file, offset, weight = (np.concatenate(c) for c in zip(*found, strict=True)) if found else _NONE
    chosen: list[int] = []
    left: dict[int, list[int]] = {}  # rows of each group
    for row in np.lexsort((offset, file, number, group)).tolist():
        if weight[row] <= missing[group[row]]:
            missing[group[row]] -= weight[row]
            chosen.append(row)
        else:
            left.setdefault(int(group[row]), []).append(row)
    # What groups lack together: one more document of some, those that lack most first.
    rest = int(missing[is_partial].sum())
    for g in sorted(left, key=lambda g: (-int(missing[g]), g)):
        row = next((row for row in left[g] if weight[row] <= rest), None)
        if row is not None:
            rest -= int(weight[row])
            chosen.append(row)
    return np.sort(_places(file[chosen], offset[chosen]))


def _places(file: Array, offset: Array) -> Array:
    """Return a number for each place in the input."""
    return file.astype(np.uint64) << np.uint64(44) | offset.astype(np.uint64)


# -- edges ------------------------------------------------------------------------------------------------------------
def _find_edges(scored: _ScoredRecords, step: DecideBuckets, run: SolverRun) -> Edges:
    ranks = _rank_edges(scored, run) if step.choice.is_ranked else []
    scored.use_ranks(Edges(step.n, step.choice, step.by, [], ranks), scored.names)
    found = _quantiles(scored, scored.chunks, step.n, run)
    return Edges(step.n, replace(step.choice, scores_from=None), step.by, found, ranks)


def _rank_edges(scored: _ScoredRecords, run: SolverRun) -> list[list[GroupEdges]]:
    return [
        _quantiles(scored, lambda k=k: scored.chunks_of_score(k), N_RANKS, run)
        for k in range(len(scored.choice.scores))
    ]


def _quantiles(scored: _ScoredRecords, chunks: Any, n: int, run: SolverRun) -> list[GroupEdges]:
    counts, weights = totals_of(chunks, len(scored.names))
    # In whole numbers: k/n of the weight, rounded up. Groups without weight have no edges.
    targets = np.array([[-(-k * int(w) // n) or 1 for k in range(1, n)] for w in weights], np.int64).reshape(-1, n - 1)
    filled = np.flatnonzero(weights > 0)
    position = np.full(len(weights), -1, np.int64)
    position[filled] = np.arange(len(filled))

    def mine() -> Iterator[tuple[Array, Array, Array]]:
        for group, key, weight in chunks():
            at = position[group]
            yield np.maximum(at, 0), np.where(at < 0, np.uint32(NO_KEY), key), weight

    found = numbers_of(smallest_reaching(mine, targets[filled], run.room_bytes))
    return [
        GroupEdges(
            name,
            [float(e) for e in found[position[i]]] if position[i] >= 0 else [],
            int(counts[i]),
            int(weights[i]),
        )
        for i, name in enumerate(scored.names)
    ]


def _side_scores(choice: ScoreChoice, run: SolverRun) -> SideScores | None:
    return None if choice.scores_from is None else SideScores(choice.scores_from, choice.scores, run.paths())


# -- records ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Part:
    """Documents of one record batch. `score`: of all scores together; `key`: the same in order (weighted.py)."""

    file: Array
    offset: Array
    group: Array
    weight: Array
    scores: list[Array]
    score: Array
    key: Array


class _ScoredRecords:
    """The records with their scores made one. `names`: of the groups, ascending; a single one without `by`."""

    def __init__(self, records: Records, choice: ScoreChoice, is_grouped: bool, side: SideScores | None = None) -> None:
        self.records, self.choice, self._is_grouped, self._side = records, choice, is_grouped, side
        self._names = self._distinct() if is_grouped else np.array([b""])
        self.names = [raw.decode("utf-8", "replace") for raw in self._names.tolist()]
        self._ranks: list[list[Array]] = []  # of each score, the edges of each group, as keys

    def _distinct(self) -> Array:
        names = np.empty(0, "S32")
        for _, group in self.records.iter_column("group"):
            names = np.unique(np.concatenate([names, group.view("S32")]))
            if len(names) > MOST_GROUPS:
                raise UsageError(f"buckets: by has more than {MOST_GROUPS:,} values; use a field with fewer")
        return names if len(names) else np.array([b""])

    def use_ranks(self, edges: Edges, names: list[str]) -> None:
        """Take the edges of ranks, which groups have by their names."""
        self._ranks = []
        for of_score in edges.ranks:
            by_name = {group.name: keys_of(np.array(group.edges, np.float32)) for group in of_score}
            self._ranks.append([by_name.get(name, np.empty(0, np.uint32)) for name in self.names])

    def _columns(self, names: list[str]) -> Iterator[list[Array]]:
        for several in zip(*(self.records.iter_column(name) for name in names), strict=True):
            yield [values for _, values in several]

    def _groups(self, raw: Array | None, n: int) -> Array:
        return np.zeros(n, np.int64) if raw is None else np.searchsorted(self._names, raw.view("S32"))

    def parts(self) -> Iterator[_Part]:
        own = [] if self._side is not None else [f"score_{k}" for k in range(len(self.choice.scores))]
        for columns in self._columns(["file", "offset", "weight", *own, *(["group"] if self._is_grouped else [])]):
            file, offset, weight, *scores = columns
            raw = scores.pop() if self._is_grouped else None
            if self._side is not None:
                scores = list(self._side.of(file, offset))
            group = self._groups(raw, len(file))
            score = self._combined(scores, group)
            yield _Part(file, offset, group, weight, scores, score, keys_of(score))

    def chunks(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield (group, key, weight) of all documents."""
        for part in self.parts():
            yield part.group, part.key, part.weight

    def chunks_of_score(self, k: int) -> Iterator[tuple[Array, Array, Array]]:
        if self._side is not None:
            for file, offset, weight, *raw in self._columns(
                ["file", "offset", "weight", *(["group"] if self._is_grouped else [])]
            ):
                score = self._side.of(file, offset)[k]
                yield self._groups(raw[0] if raw else None, len(score)), keys_of(score), weight
            return
        for columns in self._columns(["weight", f"score_{k}", *(["group"] if self._is_grouped else [])]):
            weight, score = columns[:2]
            yield self._groups(columns[2] if self._is_grouped else None, len(score)), keys_of(score), weight

    def draws(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield (group, draw, weight) of all documents."""
        for _, _, group, draw, weight in self.positions():
            yield group, draw, weight

    def positions(self) -> Iterator[tuple[Array, Array, Array, Array, Array]]:
        """Yield (file, offset, group, draw, weight) of all documents."""
        for file, offset, raw, draw, weight in self._columns(["file", "offset", "group", "draw", "weight"]):
            yield file, offset, self._groups(raw, len(file)), draw, weight

    def _combined(self, scores: list[Array], group: Array) -> NDArray[np.float32]:
        """Make one score of several; NaN where one is missing."""
        if len(scores) == 1:
            return np.asarray(scores[0], np.float32)
        values = np.stack(scores).astype(np.float64)
        if self.choice.is_ranked:
            values = np.stack([self._ranked(k, score, group) for k, score in enumerate(scores)])
        one = values.max(axis=0) if self.choice.ensemble.endswith("max") else values.mean(axis=0)
        made: NDArray[np.float32] = one.astype(np.float32)
        return made

    def _ranked(self, k: int, score: Array, group: Array) -> NDArray[np.float64]:
        keys, ranks = keys_of(score), np.full(len(score), np.nan)
        for g in np.unique(group).tolist():
            rows = np.flatnonzero((group == g) & (keys != NO_KEY))
            ranks[rows] = np.searchsorted(self._ranks[k][g], keys[rows], side="left")
        return ranks / N_RANKS


def _table(run: SolverRun, columns: dict[str, str]) -> PositionTable:
    folder = run.path("removal")
    if resolve(folder) == folder:
        shutil.rmtree(folder, ignore_errors=True)
    return PositionTable(folder, columns)


class _ScoreTable:
    """The side table: a row for each document, by the path of its file and its position in it, 4 bytes per score."""

    def __init__(self, path: str, choice: ScoreChoice, paths: list[str]) -> None:
        self._names, self._paths = choice.scores, pa.array([path_text(p) for p in paths], pa.large_string())
        kind = pa.dictionary(pa.int32(), pa.large_string())
        fields = [("path", kind), ("offset", pa.int64()), *((name, pa.float32()) for name in self._names)]
        about = {b"tamis": json.dumps({"format": "tamis scores 2", "scores": self._names}).encode()}
        self._schema = pa.schema(fields, metadata=about)
        self._writer = pq.ParquetWriter(files.fresh(path), self._schema, compression="zstd")

    def __enter__(self) -> _ScoreTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, part: _Part) -> None:
        path = pa.DictionaryArray.from_arrays(pa.array(part.file, pa.int32()), self._paths)
        columns = [path, pa.array(part.offset, pa.int64()), *(pa.array(s, pa.float32()) for s in part.scores)]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
