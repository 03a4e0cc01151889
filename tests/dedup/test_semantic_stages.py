"""Semantic deduplication stage by stage: the files between the stages, and ids that brute force finds, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.dedup.semantic.stages import ClusterWiseFilePartitioningStage, KMeansReadFitWriteStage
from tamis.engine.job import make_job
from tamis.engine.run.identity import describe_job
from tamis.errors import TamisError, UsageError
from tamis.stages.deduplication.semantic import IdentifyDuplicatesStage, KMeansStage, PairwiseStage, RankingStrategy
from tamis.stages.deduplication.semantic.pairwise import pairwise_cosine_similarity_batched
from tamis.tasks import EmptyTask, FileGroupTask

N, DIMENSION, EPS = 120, 16, 0.01


def vectors() -> np.ndarray[Any, Any]:
    """Three far groups; every third document is nearly the one before it."""
    rng = np.random.default_rng(0)
    centres = np.eye(3, DIMENSION) * 8
    x = centres[np.arange(N) % 3] + rng.normal(size=(N, DIMENSION))
    for i in range(5, N, 6):
        x[i] = x[i - 3] + 1e-3
    return x


def embedded(folder: Path, x: np.ndarray[Any, Any]) -> Path:
    folder.mkdir()
    for part in range(2):
        rows = range(part * N // 2, (part + 1) * N // 2)
        table = {
            "id": [f"d{i:03d}" for i in rows],
            "embeddings": [None if i == 7 else x[i].tolist() for i in rows],
            "grade": [float(i) for i in rows],
        }
        pq.write_table(pa.table(table), folder / f"part-{part}.parquet")
    return folder


def run(*stages: Any) -> Any:
    return Pipeline("p", stages=list(stages)).run(InProcessExecutor())


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("semantic")
    run(
        KMeansStage(
            3,
            "id",
            "embeddings",
            str(embedded(root / "in", vectors())),
            str(root / "clusters"),
            metadata_fields=["grade"],
        )
    )
    return root / "clusters"


def read(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(p).read() for p in sorted(folder.rglob("*.parquet"))])


def test_clusters_hold_every_document_with_an_embedding_once(clusters: Path) -> None:
    assert sorted(p.name for p in clusters.iterdir()) == ["centroid=0", "centroid=1", "centroid=2"]
    table = read(clusters)
    assert sorted(table["id"].to_pylist()) == [f"d{i:03d}" for i in range(N) if i != 7]
    assert table.column_names == ["id", "embeddings", "grade", "l2_dist_to_cent", "cosine_dist_to_cent"]
    for folder in clusters.iterdir():
        assert len({int(i[1:]) % 3 for i in read(folder)["id"].to_pylist()}) == 1  # the groups are found
    cosine, l2 = (np.array(table[c].to_pylist()) for c in ("cosine_dist_to_cent", "l2_dist_to_cent"))
    assert np.allclose(l2**2, 2 * cosine)


@pytest.mark.parametrize("which", ["hard", "easy", "random", "grade"])
def test_duplicates_are_those_of_brute_force(clusters: Path, tmp_path: Path, which: str) -> None:
    how: dict[str, Any] = {"which_to_keep": which}
    if which == "grade":
        how = {"ranking_strategy": RankingStrategy.metadata_based(["grade"], ascending=False)}
    run(
        PairwiseStage("id", "embeddings", str(clusters), str(tmp_path / "pairs"), pairwise_batch_size=7, **how),
        IdentifyDuplicatesStage(str(tmp_path / "gone"), EPS),
    )
    pairs = read(tmp_path / "pairs")
    assert len(pairs) == N - 1
    gone = read(tmp_path / "gone")
    assert gone["id"].to_pylist() == sorted(gone["id"].to_pylist())
    x = vectors() / np.linalg.norm(vectors(), axis=1, keepdims=True)
    close = {
        frozenset((i, j))
        for i in range(N)
        for j in range(i)
        if i % 3 == j % 3 and 7 not in (i, j) and x[i] @ x[j] >= 1 - EPS
    }
    found = {
        frozenset((int(a[1:]), int(b[1:])))
        for a, b in zip(gone["id"].to_pylist(), gone["max_id"].to_pylist(), strict=True)
    }
    assert found == close
    assert len(close) == 20
    if which == "grade":  # the higher grade stays
        assert all(
            int(a[1:]) < int(b[1:]) for a, b in zip(gone["id"].to_pylist(), gone["max_id"].to_pylist(), strict=True)
        )


@pytest.mark.parametrize("size", [1, 3, 50])
def test_the_largest_cosine_to_a_row_before(size: int) -> None:
    x = vectors()[:10].astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    best, of = pairwise_cosine_similarity_batched(x, size)
    for i in range(1, 10):
        assert best[i] == pytest.approx(max(x[i] @ x[j] for j in range(i)), abs=1e-6)
        assert x[i] @ x[of[i]] == pytest.approx(best[i], abs=1e-6)
    assert (best[0], of[0]) == (0, 0)


def kmeans(n_clusters: int, source: Path, target: Path, **more: Any) -> KMeansReadFitWriteStage:
    made = KMeansStage(n_clusters, "id", "embeddings", str(source), str(target), **more).decompose()[1]
    assert isinstance(made, KMeansReadFitWriteStage)
    return made


def task_of(folder: Path) -> FileGroupTask:
    return FileGroupTask("d", sorted(str(p) for p in folder.rglob("*.parquet")))


def test_clusters_and_pairs_of_an_earlier_call_are_replaced(tmp_path: Path) -> None:
    source, target = embedded(tmp_path / "in", vectors()), tmp_path / "clusters"
    kmeans(6, source, target).process(task_of(source))
    (tmp_path / "pairs").mkdir()
    pairs = pa.table({"id": ["a"], "max_id": ["b"], "cosine_sim_score": [0.5]})
    for name in ("cluster_0.parquet", "cluster_5.parquet"):
        pq.write_table(pairs, tmp_path / "pairs" / name)
    (tmp_path / "pairs" / "notes.txt").touch()
    pq.write_table(pa.table({"mine": [1]}), tmp_path / "pairs" / "cluster_7.parquet")
    kmeans(2, source, target).process(task_of(source))
    assert sorted(p.name for p in target.iterdir()) == ["centroid=0", "centroid=1"]
    assert len(read(target)) == N - 1
    groups = ClusterWiseFilePartitioningStage(str(target), _pairs=str(tmp_path / "pairs")).process(EmptyTask())
    assert len(groups) == 2
    assert sorted(p.name for p in (tmp_path / "pairs").iterdir()) == [
        "cluster_0.parquet",
        "cluster_7.parquet",
        "notes.txt",
    ]
    with pytest.raises(UsageError, match="is read as input"):
        kmeans(2, target, target).process(task_of(target))
    for name in ("mine.parquet", "part-00007.parquet"):
        pq.write_table(pa.table({"mine": [1]}), target / "centroid=0" / name)
        with pytest.raises(UsageError, match=rf"{name} .* is not a file of this stage"):
            kmeans(2, source, target).process(task_of(source))
        (target / "centroid=0" / name).unlink()  # it is still there


def test_batches_without_an_embedding_and_shares_of_none(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = {"id": ["a", "b", "c", "d"], "embeddings": [[1.0, 0.0], None, None, [1.0, 0.1]]}
    pq.write_table(pa.table(rows), tmp_path / "in" / "0.parquet")
    pq.write_table(pa.table({"id": ["e"], "embeddings": pa.nulls(1)}), tmp_path / "in" / "1.parquet")
    kmeans(1, tmp_path / "in", tmp_path / "out", max_samples_per_batch=1).process(task_of(tmp_path / "in"))
    assert read(tmp_path / "out")["id"].to_pylist() == ["a", "d"]
    with pytest.raises(
        UsageError, match="fit_data_fraction=1e-09 chose none of the 2 documents that have an embedding"
    ):
        kmeans(1, tmp_path / "in", tmp_path / "out", fit_data_fraction=1e-9).process(task_of(tmp_path / "in"))
    pq.write_table(pa.table({"id": ["f"], "embeddings": [[1.0]]}), tmp_path / "in" / "2.parquet")
    with pytest.raises(UsageError, match="has 2 numbers in some documents and 1 in others"):
        kmeans(1, tmp_path / "in", tmp_path / "out").process(task_of(tmp_path / "in"))


def test_equal_vectors_are_found_without_any_tolerance_of_the_users(tmp_path: Path) -> None:
    pairs = {
        "id": ["a", "b", "c"],
        "max_id": ["x", "x", "x"],
        "cosine_sim_score": pa.array([0.9999999, 1.0, 0.99999], pa.float32()),
    }
    pq.write_table(pa.table(pairs), tmp_path / "cluster_0.parquet")
    task = FileGroupTask("d", [str(tmp_path / "cluster_0.parquet")])
    IdentifyDuplicatesStage(str(tmp_path / "gone"), 0.0).process(task)
    assert read(tmp_path / "gone")["id"].to_pylist() == ["a", "b"]


def test_the_summary_counts_what_the_stages_read_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = embedded(tmp_path / "in", vectors())
    kmeans = KMeansStage(3, "id", "embeddings", str(source), str(tmp_path / "clusters"), ["grade"])
    Pipeline("2_cluster", stages=[kmeans]).run(InProcessExecutor(), run_dir=str(tmp_path / "run"))
    assert capsys.readouterr().err.startswith("2_cluster: 120 documents read; 0:0")
    run(PairwiseStage("id", "embeddings", str(tmp_path / "clusters"), str(tmp_path / "pairs")))
    assert capsys.readouterr().err.startswith("p: 119 documents read; 0:0")  # one has no embedding


def test_duplicates_of_an_earlier_call_are_replaced(tmp_path: Path) -> None:
    pairs, gone = [str(tmp_path / f"cluster_{i}.parquet") for i in range(4)], tmp_path / "gone"
    for i, path in enumerate(pairs):
        scores = pa.array([1.0], pa.float32())
        pq.write_table(pa.table({"id": [f"d{i}"], "max_id": ["x"], "cosine_sim_score": scores}), path)

    def identify(*of: int) -> list[str]:
        IdentifyDuplicatesStage(str(gone), EPS).process(FileGroupTask("d", [pairs[i] for i in of]))
        return sorted(read(gone)["id"].to_pylist())

    assert identify(0, 1) == ["d0", "d1"]
    assert identify(2, 3) == ["d0", "d1", "d2", "d3"]  # another part of the same clusters
    assert identify(0) == ["d0", "d2", "d3"]  # cut in another way
    (tmp_path / "cluster_3.parquet").unlink()
    assert identify(1) == ["d0", "d1", "d2", "d3"]  # the pairs of d2 are still there
    (tmp_path / "cluster_2.parquet").unlink()
    assert identify(1) == ["d0", "d1"]


def test_duplicates_of_other_data_stay_when_their_pairs_are_gone(tmp_path: Path) -> None:
    for name in ("p1", "p2"):
        (tmp_path / name).mkdir()
        rows = {"id": [name], "max_id": ["x"], "cosine_sim_score": pa.array([1.0], pa.float32())}
        pq.write_table(pa.table(rows), tmp_path / name / "cluster_0.parquet")
        IdentifyDuplicatesStage(str(tmp_path / "gone"), EPS).process(task_of(tmp_path / name))
        (tmp_path / name / "cluster_0.parquet").unlink()
    assert sorted(read(tmp_path / "gone")["id"].to_pylist()) == ["p1", "p2"]


def test_the_output_folder_is_no_parameter_of_the_stage_that_lists_clusters() -> None:
    stages = PairwiseStage("id", "embeddings", "clusters", "pairs").decompose()
    about = next(e for e in describe_job(make_job("pairs", stages), {}) if "ClusterWise" in e.stage)
    assert set(about.params) == {"input_path", "storage_options"}


def test_wrong_parameters_and_folders(tmp_path: Path) -> None:
    for make, words in (
        (lambda: KMeansStage(0, "id", "e", str(tmp_path), "out"), "n_clusters"),
        (lambda: KMeansStage(2, "id", "e", str(tmp_path), "out", input_filetype="jsonl"), "must be 'parquet'"),
        (lambda: PairwiseStage("id", "e", str(tmp_path), "out", which_to_keep="best"), "which_to_keep"),
        (
            lambda: PairwiseStage("id", "e", str(tmp_path), "out", pairwise_batch_size=0),
            "pairwise_batch_size: expected",
        ),
        (lambda: IdentifyDuplicatesStage("out", 3), "eps"),
        (
            lambda: IdentifyDuplicatesStage("out", 0.1, read_kwargs={"filters": []}),
            r"unknown read_kwargs \['filters'\]",
        ),
        (lambda: KMeansStage(2, "id", "e", str(tmp_path), "out", read_kwargs={"columns": ["x"]}), "columns is refused"),
        (lambda: KMeansStage(2, "id", "e", str(tmp_path), "out", fit_data_fraction=0), "fit_data_fraction: expected"),
    ):
        with pytest.raises(UsageError, match=words):
            make()
    with pytest.raises(TamisError, match="no folders centroid="):
        run(
            PairwiseStage("id", "e", str(tmp_path), str(tmp_path / "out")),
            IdentifyDuplicatesStage(str(tmp_path / "gone"), EPS),
        )
