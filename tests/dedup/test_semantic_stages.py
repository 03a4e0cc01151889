"""Semantic deduplication stage by stage: the files between the stages, and ids that brute force finds, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import TamisError, UsageError
from tamis.stages.deduplication.semantic import IdentifyDuplicatesStage, KMeansStage, PairwiseStage, RankingStrategy
from tamis.stages.deduplication.semantic.pairwise import pairwise_cosine_similarity_batched

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
        table = {"id": [f"d{i:03d}" for i in rows], "embeddings": [None if i == 7 else x[i].tolist() for i in rows], "grade": [float(i) for i in rows]}  # fmt: skip
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
    run(PairwiseStage("id", "embeddings", str(clusters), str(tmp_path / "pairs"), pairwise_batch_size=7, **how), IdentifyDuplicatesStage(str(tmp_path / "gone"), EPS))  # fmt: skip
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


def test_wrong_parameters_and_folders(tmp_path: Path) -> None:
    for make, words in (
        (lambda: KMeansStage(0, "id", "e", str(tmp_path), "out"), "n_clusters"),
        (lambda: KMeansStage(2, "id", "e", str(tmp_path), "out", input_filetype="jsonl"), "must be 'parquet'"),
        (lambda: PairwiseStage("id", "e", str(tmp_path), "out", which_to_keep="best"), "which_to_keep"),
        (lambda: IdentifyDuplicatesStage("out", 3), "eps"),
    ):
        with pytest.raises(UsageError, match=words):
            make()
    with pytest.raises(TamisError, match="no folders centroid="):
        run(
            PairwiseStage("id", "e", str(tmp_path), str(tmp_path / "out")),
            IdentifyDuplicatesStage(str(tmp_path / "gone"), EPS),
        )
