"""SemanticDeduplicationWorkflow: documents whose embeddings point nearly the same way; of each such group one stays."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tamis._dataclasses import dataclass
from tamis.dedup.kinds import SEMANTIC
from tamis.dedup.options import UserWorkflow, absolute
from tamis.dedup.semantic.ranking import RankingStrategy
from tamis.dedup.semantic.vectors import DocumentVectors, check_fraction, least_cosine
from tamis.errors import UsageError
from tamis.pipeline import WorkflowRunResult
from tamis.sizes import check_integer, check_optional_integer, is_number, parse_fraction

if TYPE_CHECKING:
    from tamis.dedup.nemo_compat.id_files import IdFiles
    from tamis.dedup.passes import Passes

IDS_FOLDER = "duplicates"
_BUDGET = "is for its stages one by one; here the memory budget decides"
DONE_OTHERWISE: dict[str, tuple[tuple[Any, ...], str]] = {  # values that ask for nothing, and what is done about others
    "max_samples_per_batch": ((1 << 15,), _BUDGET),
    "_duplicates_num_row_groups_hint": ((None,), _BUDGET),
    "metadata_fields": (
        (None, [], ()),
        "is for its stages one by one; here a ranking_strategy reads its column from the documents",
    ),
    "cache_kwargs": (
        (None, {}),
        "is about files between its stages; what lies between the passes has a form of its own",
    ),
    "write_kwargs": (
        (None, {}, {"storage_options": {}}),
        "is not used: documents are written as output_filetype says, ids as Parquet",
    ),
}
BACKENDS = ("cpu", "gpu", "auto")
KEEP = ("hard", "easy", "random")
INITS = ("k-means||", "random")
METRICS = ("cosine", "l2")  # distances to the centroid; of unit vectors both give the same order
DISTANCES = ("cosine_dist_to_cent", "l2_dist_to_cent")


@dataclass
class SemanticDeduplicationWorkflow(UserWorkflow):
    """Clusters documents with embeddings (k-means on a sample), and keeps one of each group of similar ones.

    A document goes when the cosine of its embedding and that of one that stays is at least 1 - `eps`, both in one
    cluster. `which_to_keep`: of like documents the one far from its centroid (hard), near to it (easy), or any
    (random); a `ranking_strategy` comes before that. `eps` 0 finds equal embeddings: cosines are those of float32, so
    anything below 0.000002 means that. Documents whose embedding is null or zero always stay. `output_path` gets the
    documents that stay and, in `OUT.tamis/duplicates`, one row per duplicate with the one it resembles and the cosine;
    `perform_removal=False` only finds them, and writes the values of `id_field` of those that go to `duplicates/`, as
    the column `id`, for TextDuplicatesRemovalWorkflow (None: no such table). The same call resumes where it was
    stopped, whatever `clear_output` says; `run(fresh=True)` starts over. `verbose`: whether its progress is shown.
    With `cache_path` (and without removal), or without `eps`, clusters and pairs are written step by step (steps.py).
    `backend`: where vectors are compared: "cpu", "gpu", or "auto" (whichever is faster here, measured). `n_clusters`
    None: one for about 1,000 documents, 1,000 at most. `fit_data_fraction`: the share of documents that clusters are
    made from (default: at least 64 for each cluster).
    """

    input_path: Any
    output_path: str
    n_clusters: int | None
    cache_path: str | None = None
    id_field: str | None = "id"
    embedding_field: str = "embeddings"
    embedding_dim: int | None = None
    metadata_fields: Sequence[str] | None = None
    input_filetype: str | None = "parquet"
    input_file_extensions: Sequence[str] | None = None
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int = 42
    init: str = "k-means||"
    n_init: int | str = 1
    oversampling_factor: float = 2.0
    max_samples_per_batch: int = 1 << 15
    fit_data_fraction: float | None = None
    distance_metric: str = "cosine"
    which_to_keep: str = "hard"
    ranking_strategy: RankingStrategy | None = None
    pairwise_batch_size: int = 1024
    eps: float | None = None
    _duplicates_num_row_groups_hint: int | None = None
    read_kwargs: Mapping[str, Any] | None = None
    cache_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    clear_output: bool = True
    verbose: bool = True
    perform_removal: bool = False
    output_filetype: str | None = None
    input_blocksize: str | int | None = None
    max_source_loss: float | str = 0.95
    backend: str = "cpu"

    def __post_init__(self) -> None:
        self.output_path = absolute(self.output_path, "output_path")
        self.input_path = absolute(self.input_path, "input_path")
        self.max_source_loss = parse_fraction(self.max_source_loss, "max_source_loss")
        for name in ("n_clusters", "embedding_dim"):
            check_optional_integer(getattr(self, name), name)
        for name, low in (("max_iter", 1), ("pairwise_batch_size", 1), ("random_state", 0)):
            check_integer(getattr(self, name), name, low)
        _one_of("which_to_keep", self.which_to_keep, KEEP)
        _one_of("init", self.init, INITS)
        _one_of("backend", self.backend, BACKENDS)
        _one_of("distance_metric", self.distance_metric, METRICS)
        if self.eps is None and self.perform_removal:
            raise UsageError("eps: say how unlike duplicates may be, e.g. eps=0.01 for a cosine of at least 0.99")
        if self.eps is not None and (not is_number(self.eps) or not 0 <= self.eps < 1):
            raise UsageError(f"eps: expected a number from 0 to below 1, got {self.eps!r}")
        check_fraction("", self.fit_data_fraction)
        if self.n_init not in (1, "auto"):
            raise UsageError("n_init: clusters are made once, from seeds chosen by k-means||; leave it at 1")
        if self.cache_path is not None:
            self.cache_path = absolute(self.cache_path, "cache_path")
        for name, (usual, why) in DONE_OTHERWISE.items():
            if not self.is_in_steps and getattr(self, name) not in usual:
                warnings.warn(f"SemanticDeduplicationWorkflow: {name} {why}", stacklevel=3)
        self._input()
        self._stage()

    @property
    def is_in_steps(self) -> bool:
        """True if the files between its steps are requested (steps.py): by a path, or by leaving out how it ends."""
        return not self.perform_removal and (self.cache_path is not None or self.eps is None)

    def _ranking(self) -> tuple[str | None, bool]:
        """Return the column of documents to rank by, and whether the largest comes first.

        Distances to the centroid are no column of documents: they are what `which_to_keep` ranks by.
        """
        if self.ranking_strategy is None:
            return None, False
        column, descending = self.ranking_strategy.column()
        return (None, descending) if column in DISTANCES else (column, descending)

    def _stage(self) -> DocumentVectors:
        rank, descending = self._ranking()
        return DocumentVectors(self.embedding_field, self.embedding_dim, rank, descending)

    def run(  # type: ignore[override]
        self,
        executor: Any = None,
        pairwise_executor: Any = None,
        *,
        kmeans_executor: Any = None,
        progress: Any = True,
        **settings: Any,
    ) -> WorkflowRunResult:
        """Run all passes as the other workflows do; without `verbose` no progress is shown.

        `executor` (or `kmeans_executor`) and `pairwise_executor` are for the two steps, where these are apart.
        """
        shown = progress if callable(progress) else bool(progress and self.verbose)
        executor = executor if executor is not None else kmeans_executor
        if self.is_in_steps:
            from tamis.backends.slurm_array import undivided
            from tamis.dedup.semantic.steps import run_in_steps

            later = pairwise_executor if pairwise_executor is not None else executor
            with undivided(self.owner, settings):
                return run_in_steps(self, (executor, later), bool(shown), settings)
        from tamis.dedup.nemo_compat.finding import DocumentedResult

        started_s = time.monotonic()
        result = self.find(executor, shown, settings)
        metadata = {"num_duplicates": result.summary.get("n_duplicates"), "total_time": time.monotonic() - started_s}
        return DocumentedResult("semantic_deduplication", result, {}, metadata)

    def ids(self) -> IdFiles:
        from tamis.dedup.nemo_compat.id_files import IdFiles

        is_asked = not self.perform_removal and self.id_field is not None
        return IdFiles(f"{self.output_path}/{IDS_FOLDER}", self.id_field, "id", is_asked=is_asked, is_required=False)

    def passes(self) -> Passes:
        from tamis.dedup.passes import Passes
        from tamis.dedup.solver_task import CompareVectors

        assert self.eps is not None
        which, order_seed = self.which_to_keep, self.random_state
        if self.ranking_strategy is not None and self.ranking_strategy.column()[0] in DISTANCES:
            which = "hard" if self.ranking_strategy.column()[1] else "easy"
        if self.ranking_strategy is not None and self.ranking_strategy.strategy == "random":
            which, order_seed = "random", self.ranking_strategy.random_seed
        decision = CompareVectors(
            n_clusters=self.n_clusters,
            max_iter=self.max_iter,
            tol=self.tol,
            seed=self.random_state,
            init=self.init,
            oversampling=self.oversampling_factor,
            fit_data_fraction=self.fit_data_fraction,
            which_to_keep=which,
            pairwise_batch_size=self.pairwise_batch_size,
            eps=float(self.eps),
            order_seed=order_seed,
            backend=self.backend,
        )
        parameters = {k: v for k, v in vars(decision).items() if k not in ("order_seed", "backend")}
        identity = {
            "input": self.input_path,
            "input_filetype": self.input_filetype,
            "embedding_field": self.embedding_field,
            "embedding_dim": self.embedding_dim,
            "ranking": None if self.ranking_strategy is None else vars(self.ranking_strategy),
            "perform_removal": self.perform_removal,
            **parameters,
        }
        return Passes(
            SEMANTIC.title,
            self._input().reader,
            [(self._stage(), [])],
            self.output_path,
            decision,
            self._writer(),
            SEMANTIC,
            threshold=least_cosine(self.eps),
            max_source_loss=float(self.max_source_loss),
            identity=identity,
        )


def _one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise UsageError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
