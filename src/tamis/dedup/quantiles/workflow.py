"""The passes of a choice by scores: records of scores, edges or a limit, and the stage that applies them."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tamis.dedup.kinds import BUCKETS, MIX, SCORES, TOP, DedupKind
from tamis.dedup.quantiles.choice import ENSEMBLES, MOST_BUCKETS, WEIGHTS, ScoreChoice, TopLimit, load_edges
from tamis.dedup.quantiles.mixing import MixRule
from tamis.dedup.quantiles.stages import AddScores, AssignBuckets, DropBelow, ScoreRecords, WriteCopies
from tamis.errors import UsageError, check_choice
from tamis.sizes import check_integer, is_number, parse_fraction
from tamis.stores.run_locations import run_dir_of

if TYPE_CHECKING:
    from tamis.dedup.passes import Passes
    from tamis.dedup.solver_task import SolverStep
    from tamis.stages.base import ProcessingStage


MOST_EPOCHS = 100


def score_choice(
    owner: str, score: str | Sequence[str], ensemble: str, weight: str, scores_from: str | None = None
) -> ScoreChoice:
    """Check how documents are scored and weighed."""
    scores = [score] if isinstance(score, str) else list(score)
    if not scores or not all(isinstance(s, str) and s for s in scores) or len(set(scores)) < len(scores):
        raise UsageError(f"{owner}: score must be the name of a field, or several different ones, got {score!r}")
    check_choice(f"{owner}: ensemble", ensemble, ENSEMBLES)
    check_choice(f"{owner}: weight", weight, WEIGHTS)
    table = None if scores_from is None else _score_table(owner, scores_from, scores)
    return ScoreChoice(scores, ensemble, weight, table)


def _score_table(owner: str, path: str, scores: Sequence[str]) -> str:
    """Return the table of scores that a path names: itself, or that of an output folder with most documents."""
    if os.path.isdir(path):
        folder = os.path.join(run_dir_of(path), "duplicates")
        paths = sorted(glob.glob(os.path.join(glob.escape(folder), "*scores.parquet")))
        if not paths:
            raise UsageError(f"{owner}: {path} has no table of scores ({folder}/*scores.parquet)")
        path = max(paths, key=lambda table: _n_rows(table, scores))
    if not os.path.isfile(path):
        raise UsageError(f"{owner}: there is no {path}; give the output of a run with scores or buckets")
    if missing := [name for name in scores if name not in _columns(path)]:
        raise UsageError(
            f"{owner}: {path} has no scores of {', '.join(missing)}; it has {', '.join(_columns(path)[2:])}"
        )
    return os.path.abspath(path)


def _n_rows(path: str, scores: Sequence[str]) -> int:
    """Return how many documents a table lists, 0 if it lacks one of the scores."""
    from tamis.formats.parquet.format import open_file

    return int(open_file(path).metadata.num_rows) if set(scores) <= set(_columns(path)) else 0


def _columns(path: str) -> list[str]:
    from tamis.formats.parquet.format import open_file

    try:
        return list(open_file(path).schema_arrow.names)
    except (OSError, ValueError) as exc:  # errors of Arrow are ValueErrors
        raise UsageError(f"{path}: no table of scores, or a damaged one ({exc})") from None


@dataclass
class ScoresWorkflow:
    """Scores of documents by their position; a step of a curation. See curation.steps.Scores."""

    output_path: str
    score: str | Sequence[str] = ()
    scores_from: str | None = None
    text_field: str = "text"

    def __post_init__(self) -> None:
        self.choice = score_choice(SCORES.title, self.score, "max", "documents", self.scores_from)

    def passes(self) -> Passes:
        from tamis.dedup.solver_task import KeepScores

        identity = _identity(self.choice, None, self.text_field, None)
        return _passes(SCORES, self.output_path, ScoreRecords(self.choice.fields), KeepScores(self.choice), identity)

    def removal(self, table: str) -> ProcessingStage[Any, Any]:
        return AddScores(table, self.choice.scores if self.scores_from is not None else [])


@dataclass
class BucketsWorkflow:
    """Buckets between weighted quantiles of a score; a step of a curation. See curation.steps.Buckets."""

    output_path: str
    score: str | Sequence[str] = ()
    n: int = 20
    weight: str = "documents"
    by: str | None = None
    ensemble: str = "max"
    edges: str | None = None
    bucket_field: str = "quality_bucket"
    scores_from: str | None = None
    tokens_field: str | None = None
    text_field: str = "text"

    def __post_init__(self) -> None:
        owner = BUCKETS.title
        self.choice = score_choice(owner, self.score, self.ensemble, self.weight, self.scores_from)
        check_integer(self.n, f"{owner}: n", 2, MOST_BUCKETS)
        if not self.bucket_field or self.bucket_field in (*self.choice.scores, self.text_field, self.by):
            raise UsageError(f"{owner}: bucket_field must be a field of its own, got {self.bucket_field!r}")
        if self.edges is not None:
            self._check_edges(self.edges)

    def _check_edges(self, path: str) -> None:
        if not os.path.isfile(path):
            raise UsageError(f"{BUCKETS.title}: there is no {path}; give the edges.json of an earlier run")
        edges = load_edges(path)
        if edges.choice != replace(self.choice, scores_from=None) or edges.by != self.by or edges.n != self.n:
            raise UsageError(
                f"{path}: these edges are of {edges.n} buckets of {vars(edges.choice)} by {edges.by}; the step has "
                f"{self.n} of {vars(self.choice)} by {self.by}"
            )

    def passes(self) -> Passes:
        from tamis.dedup.solver_task import DecideBuckets

        edges = None if self.edges is None else os.path.abspath(self.edges)
        identity = {
            **_identity(self.choice, self.by, self.text_field, self.tokens_field),
            "n": self.n,
            "bucket_field": self.bucket_field,
            "edges": _contents(edges),
        }
        step = DecideBuckets(self.choice, self.by, self.n, edges)
        by = [] if self.by is None else [self.by]
        records = ScoreRecords(self.choice.fields, self.weight, by, self.text_field, self.tokens_field)
        return _passes(BUCKETS, self.output_path, records, step, identity)

    def removal(self, table: str) -> ProcessingStage[Any, Any]:
        return AssignBuckets(table, self.bucket_field)


@dataclass
class TopWorkflow:
    """The documents with the highest scores, up to a limit; a step of a curation. See curation.steps.KeepTop."""

    output_path: str
    score: str | Sequence[str] = ()
    fraction: float | str | None = None
    documents: int | None = None
    tokens: int | None = None
    bytes: int | None = None
    weight: str | None = None
    ensemble: str = "max"
    scores_from: str | None = None
    tokens_field: str | None = None
    text_field: str = "text"

    def __post_init__(self) -> None:
        owner = TOP.title
        amounts = {"documents": self.documents, "tokens": self.tokens, "bytes": self.bytes}
        chosen = {name: value for name, value in amounts.items() if value is not None}
        if len(chosen) + (self.fraction is not None) != 1 or (chosen and self.weight is not None):
            raise UsageError(
                f"{owner}: give one of fraction (with weight: documents, bytes or tokens), documents, tokens and bytes"
            )
        for name, value in chosen.items():
            check_integer(value, f"{owner}: {name}", 1)
        share = None if self.fraction is None else parse_fraction(self.fraction, f"{owner}: fraction")
        self.limit = TopLimit(share, next(iter(chosen.values()), None))
        weight = next(iter(chosen), None) or self.weight or "documents"
        self.choice = score_choice(owner, self.score, self.ensemble, weight, self.scores_from)

    def passes(self) -> Passes:
        from tamis.dedup.solver_task import DecideTop

        identity = _identity(self.choice, None, self.text_field, self.tokens_field) | {"limit": vars(self.limit)}
        records = ScoreRecords(self.choice.fields, self.choice.weight, [], self.text_field, self.tokens_field)
        return _passes(TOP, self.output_path, records, DecideTop(self.choice, self.limit), identity)

    def removal(self, table: str) -> ProcessingStage[Any, Any]:
        limits = {"weight": self.choice.weight}
        limits |= {k: v for k, v in vars(self.limit).items() if v is not None}
        return DropBelow(table, limits)


@dataclass
class MixWorkflow:
    """A mix of groups with so many tokens; a step of a curation. See curation.steps.Mix."""

    output_path: str
    by: str | Sequence[str] = ()
    target: int | str | None = None
    epochs: Mapping[Any, float] | None = None
    shares: Mapping[Any, float] | None = None
    curve: Sequence[float] | None = None
    power: float = 1.0
    temperature: float | None = None
    unimax: bool = False
    max_epochs: float = 7.0
    tokens_field: str | None = None
    copy_field: str | None = None
    text_field: str = "text"

    def __post_init__(self) -> None:
        owner = MIX.title
        self.fields = [self.by] if isinstance(self.by, str) else list(self.by)
        if not self.fields or not all(isinstance(f, str) and f for f in self.fields):
            raise UsageError(f"{owner}: by must be the name of a field, or several, got {self.by!r}")
        target = None if self.target is None else parse_tokens(self.target, f"{owner}: target")
        if self._chosen_rule(owner) not in ("epochs", "curve") and target is None:
            raise UsageError(f"{owner}: give a target, in tokens (1_000_000, 20M, 9B)")
        self._check_numbers(owner)
        self.rule = MixRule(
            _table(owner, "epochs", self.epochs),
            _table(owner, "shares", self.shares),
            self._curve(owner),
            float(self.power),
            None if self.temperature is None else float(self.temperature),
            bool(self.unimax),
            target,
            float(self.max_epochs),
        )

    def _check_numbers(self, owner: str) -> None:
        if not is_number(self.max_epochs) or not 0 < self.max_epochs <= MOST_EPOCHS:
            raise UsageError(f"{owner}: max_epochs must be above 0, at most {MOST_EPOCHS}, got {self.max_epochs!r}")
        for name, value in (("power", self.power), ("temperature", self.temperature)):
            if value is not None and (not is_number(value) or value < 0):
                raise UsageError(f"{owner}: {name} must be a number of at least 0, got {value!r}")

    def _chosen_rule(self, owner: str) -> str:
        """Return the name of the parameter that says how groups are weighed; UsageError unless exactly one does."""
        rules = {
            "epochs": self.epochs is not None,
            "shares": self.shares is not None,
            "curve": self.curve is not None,
            "temperature": self.temperature is not None,
            "unimax": self.unimax,
        }
        chosen = [name for name, is_given in rules.items() if is_given]
        if len(chosen) != 1:
            raise UsageError(f"{owner}: give one of {', '.join(rules)}; got {chosen}")
        return chosen[0]

    def _curve(self, owner: str) -> list[float]:
        if self.curve is None:
            return []
        if isinstance(self.curve, str) or len(self.curve) != 2 or not all(is_number(e) and e >= 0 for e in self.curve):
            raise UsageError(
                f"{owner}: curve must be the epochs of the lowest and of the highest value, such as [0, 7], got "
                f"{self.curve!r}"
            )
        return [float(e) for e in self.curve]

    def passes(self) -> Passes:
        from tamis.dedup.solver_task import DecideMix

        identity = {
            "rule": {**vars(self.rule)},
            "by": self.fields,
            "text_field": self.text_field,
            "tokens_field": self.tokens_field,
            "copy_field": self.copy_field,
        }
        records = ScoreRecords([], "tokens", self.fields, self.text_field, self.tokens_field, draws=True)
        return _passes(MIX, self.output_path, records, DecideMix(self.rule), identity)

    def removal(self, table: str) -> ProcessingStage[Any, Any]:
        return WriteCopies(table, self.copy_field)


def parse_tokens(value: Any, what: str) -> int:
    """Parse a number of tokens: 5_000_000, "5M", "9B", "1.5T".

    >>> parse_tokens("1.5k", "target"), parse_tokens(70, "target")
    (1500, 70)
    """
    if isinstance(value, str):
        text = value.strip().replace("_", "").replace(",", "")
        factor = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}.get(text[-1:].lower(), 1)
        try:
            value = round(float(text[:-1] if factor > 1 else text) * factor)
        except (ValueError, OverflowError):
            raise UsageError(f"{what}: expected a number of tokens such as 5000000, 20M or 9B, got {value!r}") from None
    check_integer(value, what)
    return int(value)


def _table(owner: str, name: str, table: Mapping[Any, float] | None) -> dict[str, float]:
    if table is None:
        return {}
    if not isinstance(table, Mapping) or not table or not all(is_number(v) and v >= 0 for v in table.values()):
        raise UsageError(f"{owner}: {name} must have a number of at least 0 for each value, got {table!r}")
    if not any(table.values()):
        raise UsageError(f"{owner}: {name} is 0 for every value; one must be above")
    return {str(key): float(value) for key, value in table.items()}


def _contents(path: str | None) -> str | None:
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        return file.read()


def _identity(choice: ScoreChoice, by: str | None, text_field: str, tokens_field: str | None) -> dict[str, Any]:
    return {**vars(choice), "by": by, "text_field": text_field, "tokens_field": tokens_field}


def _passes(kind: DedupKind, output: str, records: ScoreRecords, step: SolverStep, identity: dict[str, Any]) -> Passes:
    from tamis.dedup.passes import Passes

    def no_source() -> Any:
        raise UsageError(f"{kind.title} is a step of a curation")

    return Passes(kind.title, no_source, [(records, [])], output, step, None, kind, identity=identity)
