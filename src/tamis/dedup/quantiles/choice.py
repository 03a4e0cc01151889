"""Options of choosing documents by their scores, as plain values for the process that drives the passes."""

from __future__ import annotations

from dataclasses import field

from tamis._dataclasses import dataclass
from tamis.dedup import state
from tamis.errors import RunConflict, UsageError
from tamis.files import read_json

ENSEMBLES = {
    "max": "the highest score",
    "mean": "the mean of the scores",
    "rank_max": "the highest of the ranks that the scores have, in thousandths of the weight",
    "rank_mean": "the mean of these ranks",
}
WEIGHTS = {
    "documents": "every document counts once",
    "bytes": "by the bytes of its text",
    "tokens": "by its tokens: the field tokens_field, or a quarter of its bytes",
}
N_RANKS = 1000
MOST_BUCKETS = 1000
MOST_GROUPS = 10_000


@dataclass(frozen=True)
class ScoreChoice:
    """The scores of documents: fields with numbers, and how several become one. `weight`: of WEIGHTS.

    `scores_from`: the table of an earlier run that holds them, instead of fields.
    """

    scores: list[str]
    ensemble: str = "max"
    weight: str = "documents"
    scores_from: str | None = None

    @property
    def fields(self) -> list[str]:
        """The fields that are read."""
        return [] if self.scores_from is not None else self.scores

    @property
    def is_ranked(self) -> bool:
        return len(self.scores) > 1 and self.ensemble.startswith("rank_")


@dataclass(frozen=True)
class TopLimit:
    """The most weight that is kept: a share of all, or an amount."""

    fraction: float | None = None
    amount: int | None = None


@dataclass(frozen=True)
class GroupEdges:
    """The edges of the buckets of one group: a document is in the bucket whose number is that of the edges below it."""

    name: str
    edges: list[float]
    n_documents: int = 0
    weight: int = 0


@dataclass(frozen=True)
class Edges:
    """The contents of an edges file. `ranks`: for ensembles of ranks, the edges of each score in each group."""

    n: int
    choice: ScoreChoice
    by: str | None
    groups: list[GroupEdges]
    ranks: list[list[GroupEdges]] = field(default_factory=list)


def load_edges(path: str) -> Edges:
    """Read an edges file; raise UsageError if it is not one."""
    try:
        return state.from_dict(Edges, read_json(path), path)
    except RunConflict:
        raise UsageError(f"{path}: not the edges of buckets; give the edges.json of an earlier run") from None
