"""Semantic deduplication in single stages, with the files between them that users know: clusters, pairs, duplicates.

KMeansStage              embeddings in Parquet -> centroid=K/*.parquet, with the distance of each document to its
                         centroid
PairwiseStage            each of these -> cluster_K.parquet: for each document the one before it, by rank, that it
                         resembles most
IdentifyDuplicatesStage  those files -> a table of the ids that go

One worker does each of them. SemanticDeduplicationWorkflow finds and removes in one call, inside a budget, and compares
a document only with documents that stay; use these where another tool reads the files.
"""

from __future__ import annotations

import contextlib
import glob
import io
import json
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tamis import files
from tamis._lazy import np, pa, pc, pq
from tamis.dedup.semantic.ranking import RankingStrategy
from tamis.dedup.semantic.vectors import check_fraction, least_cosine, nothing_to_fit, unit_vectors
from tamis.errors import UsageError
from tamis.sizes import check_integer, check_optional_integer, is_number
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.text.io.options import read_options
from tamis.tasks import EmptyTask, FileGroupTask

_log = logging.getLogger("tamis.semantic")
L2, COSINE = "l2_dist_to_cent", "cosine_dist_to_cent"
SCORE, PARTNER = "cosine_sim_score", "max_id"
CENTROIDS = "kmeans_centroids.npy"
_ALL = 1 << 40
_OWN_PART = re.compile(r"part-[0-9]{5,}\.parquet")
_MADE_OF = b"tamis.pairs"  # in the metadata of a table of duplicates: the files that it was made of
_OWN_PAIRS = re.compile(r"cluster_[0-9]+\.parquet")


@dataclass(repr=False)
class KMeansReadFitWriteStage(ProcessingStage[FileGroupTask, FileGroupTask]):
    """Clusters of the embeddings in some Parquet files (spherical k-means), written cluster by cluster.

    `cache_path`: a folder for temporary files, which gets `kmeans_centroids.npy`. `max_samples_per_batch`: how many are
    read, assigned and written at a time. `verbose` logs what was done.
    """

    id_field: str
    embedding_field: str
    output_path: str
    filetype: str
    n_clusters: int
    metadata_fields: Sequence[str] | None = None
    embedding_dim: int | None = None
    verbose: bool = False
    max_iter: int = 300
    tol: float = 0.0001
    random_state: int = 42
    init: str = "k-means||"
    n_init: int | str = 1
    oversampling_factor: float = 2.0
    max_samples_per_batch: int = 1 << 15
    fit_data_fraction: float | None = None
    cache_path: str | None = None
    read_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    name: str = "kmeans"

    def __post_init__(self) -> None:
        if self.filetype != "parquet":
            raise UsageError(
                f"KMeansStage: input_filetype must be 'parquet', got {self.filetype!r}; SemanticDeduplicationWorkflow "
                "takes JSONL too"
            )
        for name, low in (("n_clusters", 1), ("max_iter", 1), ("max_samples_per_batch", 1), ("random_state", 0)):
            check_integer(getattr(self, name), f"KMeansStage: {name}", low)
        check_optional_integer(self.embedding_dim, "KMeansStage: embedding_dim")
        if self.n_init not in (1, "auto"):
            raise UsageError(
                "KMeansStage: n_init: clusters are made once, from seeds chosen by k-means||; leave it at 1"
            )
        check_fraction("KMeansStage: ", self.fit_data_fraction)
        _check_read("KMeansStage", self.read_kwargs)

    def process(self, task: FileGroupTask) -> FileGroupTask:
        from tamis.dedup.semantic.kmeans import Blocks, Options, fit, nearest, uniform

        options = Options(
            self.n_clusters, self.max_iter, self.tol, self.random_state, self.init, self.oversampling_factor
        )
        paths: list[str] = []
        earlier = self._earlier(task.data)
        if self.cache_path is not None:
            os.makedirs(self.cache_path, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.cache_path) as folder:
            sample = os.path.join(folder, "sample.f32")
            dimension = n = n_vectors = 0
            with open(sample, "wb") as file:
                for table in self._tables(task.data, [self.embedding_field]):
                    x, has = self._vectors(table)
                    chosen = has & (
                        uniform(np.arange(n, n + len(x)), self.random_state) < (self.fit_data_fraction or 1.0)
                    )
                    if has.any() and dimension not in (0, x.shape[1]):
                        raise UsageError(
                            f"KMeansStage: {self.embedding_field!r} has {dimension} numbers in some documents and "
                            f"{x.shape[1]} in others; "
                            "embeddings must be of one length in all documents"
                        )
                    file.write(x[chosen].tobytes())
                    dimension, n, n_vectors = (
                        x.shape[1] if has.any() else dimension,
                        n + len(x),
                        n_vectors + int(has.sum()),
                    )
            self._note_input(n_records=n)
            if not n_vectors:
                raise UsageError(f"KMeansStage: none of the {n} documents has an embedding in {self.embedding_field!r}")
            if not os.path.getsize(sample):
                raise UsageError(f"KMeansStage: {nothing_to_fit(self.fit_data_fraction, n_vectors)}")
            centroids = fit(Blocks(sample, dimension), options, lambda _: None)
        if self.cache_path is not None:
            self._keep_centroids(np.asarray(centroids, np.float32))
        for path in earlier:
            files.remove(path)
            with contextlib.suppress(OSError):  # not empty yet
                os.rmdir(os.path.dirname(path))
        columns = [self.id_field, self.embedding_field, *(self.metadata_fields or ())]
        for number, table in enumerate(self._tables(task.data, columns)):
            x, has = self._vectors(table)
            if not has.any():
                continue
            at, distance = nearest(x, centroids)
            paths += self._write(table, number, at, np.asarray(distance), has)
        if self.verbose:
            _log.info("%s: %d documents in %d clusters, %d files", self.name, n, self.n_clusters, len(paths))
        return FileGroupTask(task.dataset_name, paths)

    def _keep_centroids(self, centroids: Any) -> None:
        """Write the centroids to `cache_path`, one row each; number `k` is that of `centroid=k`."""
        data = io.BytesIO()
        np.save(data, centroids, allow_pickle=False)
        files.write_bytes(os.path.join(str(self.cache_path), CENTROIDS), data.getvalue())

    def _earlier(self, read: Sequence[str]) -> list[str]:
        """Return clusters that an earlier call wrote to the same folder, which the next stage would read, too.

        UsageError where a file is not of this stage, or is one of those that are to be read.
        """
        paths = sorted(glob.glob(os.path.join(glob.escape(self.output_path), "centroid=*", "*.parquet")))
        own_input = {os.path.abspath(path) for path in read}
        for path in paths:
            is_own = _OWN_PART.fullmatch(os.path.basename(path)) and _has_columns(path, {L2, COSINE})
            if path in own_input or not is_own:
                why = "is read as input" if path in own_input else "is not a file of this stage"
                raise UsageError(
                    f"KMeansStage: {path} would be taken for a part of the clusters, and {why}; give another "
                    "output_path"
                )
        return paths

    def _tables(self, paths: Sequence[str], columns: list[str]) -> Iterator[pa.Table]:
        for path in paths:
            file = pq.ParquetFile(path, **{k: v for k, v in (self.read_kwargs or {}).items() if k == "memory_map"})
            missing = [c for c in columns if c not in file.schema_arrow.names]
            if missing:
                raise UsageError(f"KMeansStage: {path} has no column {missing[0]!r}; it has {file.schema_arrow.names}")
            for batch in file.iter_batches(self.max_samples_per_batch, columns=columns, use_threads=False):
                yield pa.Table.from_batches([batch])

    def _vectors(self, table: pa.Table) -> tuple[Any, Any]:
        column = table.column(self.embedding_field).combine_chunks()
        return unit_vectors(column, self.embedding_field, self.embedding_dim)

    def _write(self, table: pa.Table, number: int, at: Any, distance: Any, has: Any) -> list[str]:
        """Write one file for every cluster that has documents here.

        `distance` is 1 - cosine; for unit vectors l2 follows from it.
        """
        paths = []
        for cluster in np.unique(at[has]).tolist():
            rows = np.flatnonzero(has & (at == cluster))
            part = table.take(pa.array(rows))
            cosine = np.maximum(distance[rows].astype(np.float64), 0.0)
            part = part.append_column(L2, pa.array(np.sqrt(2 * cosine))).append_column(COSINE, pa.array(cosine))
            paths.append(
                _write(
                    part,
                    os.path.join(self.output_path, f"centroid={cluster}", f"part-{number:05d}.parquet"),
                    self.write_kwargs,
                )
            )
        return paths


@dataclass(repr=False)
class KMeansStage(CompositeStage[EmptyTask, FileGroupTask]):
    """Embeddings in Parquet files -> clusters: `output_path/centroid=K/*.parquet`."""

    n_clusters: int
    id_field: str
    embedding_field: str
    input_path: Any
    output_path: str
    metadata_fields: Sequence[str] | None = None
    verbose: bool = False
    embedding_dim: int | None = None
    input_filetype: str = "parquet"
    input_file_extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    max_iter: int = 300
    tol: float = 0.0001
    random_state: int = 42
    init: str = "k-means||"
    n_init: int | str = 1
    oversampling_factor: float = 2.0
    max_samples_per_batch: int = 1 << 15
    fit_data_fraction: float | None = None
    cache_path: str | None = None
    name: str = "kmeans_stage"

    def __post_init__(self) -> None:
        self.decompose()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        extensions = list(self.input_file_extensions) if self.input_file_extensions else [".parquet"]
        return [
            FilePartitioningStage(self.input_path, files_per_partition=_ALL, file_extensions=extensions),
            KMeansReadFitWriteStage(
                self.id_field,
                self.embedding_field,
                os.path.abspath(self.output_path),
                self.input_filetype,
                self.n_clusters,
                self.metadata_fields,
                self.embedding_dim,
                self.verbose,
                self.max_iter,
                self.tol,
                self.random_state,
                self.init,
                self.n_init,
                self.oversampling_factor,
                self.max_samples_per_batch,
                self.fit_data_fraction,
                self.cache_path,
                self.read_kwargs,
                self.write_kwargs,
            ),
        ]


@dataclass(repr=False)
class ClusterWiseFilePartitioningStage(ProcessingStage[EmptyTask, FileGroupTask]):
    """The files of each cluster, as KMeansStage writes them, as one task."""

    input_path: str
    storage_options: Mapping[str, Any] | None = None
    name: str = "cluster_wise_file_partitioning"
    # The folder that pairs are written to: those of clusters that are gone are removed from it. No part of what a run
    # is.
    _pairs: str | None = None
    is_source_stage = True

    def num_workers(self) -> int | None:
        return 1

    def process(self, task: EmptyTask) -> list[FileGroupTask]:
        folders = sorted(f.name for f in os.scandir(self.input_path) if f.is_dir() and f.name.startswith("centroid="))
        if not folders:
            raise UsageError(
                f"PairwiseStage: {self.input_path} has no folders centroid=...; give the output of KMeansStage"
            )
        tasks = []
        for folder in folders:
            at = os.path.join(self.input_path, folder)
            group = FileGroupTask("", sorted(os.path.join(at, n) for n in os.listdir(at) if n.endswith(".parquet")))
            group._metadata["centroid"] = folder.removeprefix("centroid=")
            tasks.append(group)
        if self._pairs is not None and os.path.isdir(self._pairs):
            now = {f"cluster_{group._metadata['centroid']}.parquet" for group in tasks}
            for name in os.listdir(self._pairs):
                path = os.path.join(self._pairs, name)
                if _OWN_PAIRS.fullmatch(name) and name not in now and _has_columns(path, {"id", PARTNER, SCORE}):
                    files.remove(path)
        return tasks


@dataclass(repr=False)
class PairwiseCosineSimilarityStage(ProcessingStage[FileGroupTask, FileGroupTask]):
    """For each document of a cluster the one before it, by rank, that it resembles most."""

    id_field: str
    embedding_field: str
    output_path: str
    ranking_strategy: RankingStrategy | None
    pairwise_batch_size: int = 1024
    verbose: bool = False
    embedding_dim: int | None = None
    read_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    which_to_keep: str = "hard"
    random_seed: int = 42
    name: str = "pairwise_cosine_similarity"

    def __post_init__(self) -> None:
        check_integer(self.pairwise_batch_size, "PairwiseStage: pairwise_batch_size")
        check_integer(self.random_seed, "PairwiseStage: random_seed", 0)
        check_optional_integer(self.embedding_dim, "PairwiseStage: embedding_dim")
        _check_read("PairwiseStage", self.read_kwargs)

    def process(self, task: FileGroupTask) -> FileGroupTask:
        table = pa.concat_tables([pq.ParquetFile(p).read(use_threads=False) for p in task.data])
        self._note_input(n_records=len(table))
        table = table.take(pa.array(self._order(table)))
        x, _ = unit_vectors(
            table.column(self.embedding_field).combine_chunks(), self.embedding_field, self.embedding_dim
        )
        likeness, of = pairwise_cosine_similarity_batched(x, self.pairwise_batch_size)
        ids = table.column(self.id_field).combine_chunks()
        pairs = pa.table(
            {"id": ids, PARTNER: ids.take(pa.array(of)), SCORE: pa.array(np.asarray(likeness, np.float32))}
        )
        if self.verbose:
            _log.info(
                "%s: %d documents, the nearest two at %.4f", self.name, len(pairs), float(max(likeness, default=0.0))
            )
        path = os.path.join(self.output_path, f"cluster_{task._metadata.get('centroid', task.task_id)}.parquet")
        return FileGroupTask(task.dataset_name, [_write(pairs, path, self.write_kwargs)])

    def _order(self, table: pa.Table) -> np.ndarray[Any, Any]:
        """Return the positions, preferred ones first; of equals the one with the smaller id."""
        ids = np.argsort(np.array([str(i) for i in table.column(self.id_field).to_pylist()]), kind="stable")
        tie = np.empty(len(ids), np.int64)
        tie[ids] = np.arange(len(ids))
        strategy = self.ranking_strategy
        if (strategy is not None and strategy.strategy == "random") or (
            strategy is None and self.which_to_keep == "random"
        ):
            from tamis.dedup.semantic.kmeans import uniform

            return np.argsort(
                uniform(tie, self.random_seed if strategy is None else strategy.random_seed), kind="stable"
            )
        column, descending = (COSINE, self.which_to_keep == "hard") if strategy is None else strategy.column()
        if column not in table.column_names:
            raise UsageError(
                f"PairwiseStage: no column {column!r} to rank by; name it in metadata_fields of KMeansStage"
            )
        values = table.column(column).combine_chunks().to_numpy(zero_copy_only=False).astype(np.float64)
        return np.lexsort((tie, -values if descending else values))


@dataclass(repr=False)
class PairwiseStage(CompositeStage[EmptyTask, FileGroupTask]):
    """Compares the documents of each cluster of KMeansStage: `output_path/cluster_K.parquet`.

    Columns: id, max_id and cosine_sim_score.
    """

    id_field: str
    embedding_field: str
    input_path: str
    output_path: str
    ranking_strategy: RankingStrategy | None = None
    embedding_dim: int | None = None
    pairwise_batch_size: int = 1024
    verbose: bool = False
    read_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    which_to_keep: str = "hard"
    sim_metric: str = "cosine"
    random_seed: int = 42
    name: str = "pairwise_stage"

    def __post_init__(self) -> None:
        if self.sim_metric not in ("cosine", "l2"):  # of unit vectors both give the same order
            raise UsageError(f"PairwiseStage: sim_metric must be 'cosine' or 'l2', got {self.sim_metric!r}")
        if self.which_to_keep not in ("hard", "easy", "random"):
            raise UsageError(f"PairwiseStage: which_to_keep must be hard, easy or random, got {self.which_to_keep!r}")
        self.decompose()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [
            ClusterWiseFilePartitioningStage(
                os.path.abspath(self.input_path), _pairs=os.path.abspath(self.output_path)
            ),
            PairwiseCosineSimilarityStage(
                self.id_field,
                self.embedding_field,
                os.path.abspath(self.output_path),
                self.ranking_strategy,
                self.pairwise_batch_size,
                self.verbose,
                self.embedding_dim,
                self.read_kwargs,
                self.write_kwargs,
                self.which_to_keep,
                self.random_seed,
            ).with_(num_workers=1),
        ]


@dataclass(repr=False)
class IdentifyDuplicatesStage(ProcessingStage[FileGroupTask, FileGroupTask]):
    """Writes the ids of documents with a similarity of at least 1 - eps to `output_path/duplicates-*.parquet`.

    `_num_row_groups_hint`: about how many row groups a file has. `verbose` logs how many were found.
    """

    output_path: str
    eps: float
    _num_row_groups_hint: int | None = None
    verbose: bool = False
    read_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    name: str = "identify_duplicates"
    batch_size: int = 1000

    def __post_init__(self) -> None:
        if not is_number(self.eps) or not 0 <= self.eps <= 2:
            raise UsageError(f"IdentifyDuplicatesStage: eps must be from 0 to 2, got {self.eps!r}")
        if self._num_row_groups_hint is not None and self._num_row_groups_hint < 1:
            raise UsageError("IdentifyDuplicatesStage: _num_row_groups_hint must be at least 1")
        _check_read("IdentifyDuplicatesStage", self.read_kwargs)

    def num_workers(self) -> int | None:
        return 1

    def process(self, task: FileGroupTask) -> FileGroupTask:
        return self.process_batch([task])[0]

    def process_batch(self, tasks: list[FileGroupTask]) -> list[FileGroupTask]:
        paths = [p for task in tasks for p in task.data]
        pairs = pa.concat_tables([pq.ParquetFile(p).read(use_threads=False) for p in paths])
        pairs = pairs.filter(pc.greater_equal(pairs.column(SCORE), least_cosine(self.eps))).sort_by("id")
        if self.verbose:
            _log.info("%s: %d duplicates in %d files", self.name, len(pairs), len(paths))
        settings = dict(self.write_kwargs or {})
        if self._num_row_groups_hint is not None:
            settings.setdefault("row_group_size", max(1, -(-len(pairs) // self._num_row_groups_hint)))
        name = FileGroupTask("", paths).task_id
        path = os.path.join(os.path.abspath(self.output_path), f"duplicates-{name}.parquet")
        made_of = [os.path.abspath(p) for p in paths]
        self._forget(path, made_of)
        pairs = pairs.replace_schema_metadata({**(pairs.schema.metadata or {}), _MADE_OF: json.dumps(made_of)})
        return [FileGroupTask("", [_write(pairs, path, settings)])]

    def _forget(self, path: str, made_of: Sequence[str]) -> None:
        """Remove the tables that earlier calls made of some of the same pairs, or of pairs that no longer exist.

        Of two similar documents one may be listed in the old table and the other in the new one, and a reader of the
        folder would remove both.
        """
        folders = {os.path.dirname(p) for p in made_of}
        for other in glob.glob(os.path.join(glob.escape(os.path.dirname(path)), "duplicates-*.parquet")):
            try:
                recorded = (pq.read_schema(other).metadata or {}).get(_MADE_OF, b"[]")
            except (pa.ArrowException, OSError):  # none of ours
                continue
            theirs = set(json.loads(recorded)) if other != path else set()
            are_missing = theirs and all(os.path.dirname(p) in folders and not os.path.exists(p) for p in theirs)
            if theirs & set(made_of) or are_missing:
                files.remove(other)


def pairwise_cosine_similarity_batched(cluster_reps: Any, batch_size: int = 1024) -> tuple[Any, Any]:
    """Return, for each row of unit vectors, the largest cosine to an earlier row, and the index of that row.

    The first row has 0 and itself. Computed in blocks.
    """
    x = np.asarray(cluster_reps, np.float32)
    best, of = np.zeros(len(x), np.float32), np.zeros(len(x), np.int64)
    for begin in range(0, len(x), batch_size):
        block = x[begin : begin + batch_size]
        likeness = block @ x[: begin + len(block)].T
        later = np.arange(begin + len(block))[None, :] >= (begin + np.arange(len(block)))[:, None]
        likeness[later] = -2.0
        of[begin : begin + len(block)] = likeness.argmax(1)
        best[begin : begin + len(block)] = likeness.max(1)
    if len(x):
        best[0], of[0] = 0.0, 0
    return best, of


def _check_read(owner: str, read_kwargs: Mapping[str, Any] | None) -> None:
    """Refuse options that would be ignored.

    `memory_map` is honoured by KMeansStage, and changes nothing elsewhere.
    """
    options = {k: v for k, v in (read_kwargs or {}).items() if k != "memory_map"}
    if read_options(owner, options)[1] is not None:
        raise UsageError(
            f"{owner}: read_kwargs: columns is refused; the stage reads those that its own parameters name"
        )


def _has_columns(path: str, columns: set[str]) -> bool:
    """Return True if a file is Parquet with the columns that a stage here writes: a name alone says nothing."""
    try:
        return columns <= set(pq.read_schema(path).names)
    except (pa.ArrowException, OSError):
        return False


def _write(table: pa.Table, path: str, settings: Mapping[str, Any] | None) -> str:
    """Write a Parquet file atomically: complete or not at all."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **{k: v for k, v in (settings or {}).items() if k != "storage_options"})
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.write_bytes(path, sink.getvalue())
    return path
