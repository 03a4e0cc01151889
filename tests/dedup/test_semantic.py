"""Semantic deduplication: the parts against slow twins, the whole against brute force, and its promises."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import InProcessExecutor
from tamis.dedup import key_comparison
from tamis.dedup.decisions import DecisionFiles
from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow
from tamis.dedup.key_comparison import run_key_pass
from tamis.dedup.records import Records
from tamis.dedup.semantic import greedy, kmeans, products, solver
from tamis.dedup.semantic.ranking import RankingStrategy
from tamis.dedup.semantic.solver import _groups, _order
from tamis.dedup.semantic.vectors import DocumentVectors, least_cosine, rank_numbers, unit_vectors
from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow
from tamis.dedup.solver import SolverRun
from tamis.dedup.solver_task import CompareVectors, Preparation, SolverTask
from tamis.dedup.stages import RecordWriter
from tamis.dedup.task_process import EarlyProcess
from tamis.errors import PipelineError, RunConflict, UsageError
from tamis.memory import counted_processes
from tamis.pipeline import Pipeline
from tamis.stages.text.io.reader import ParquetReader

DIM = 24
EPS = 0.02


def made(n_groups: int = 300, seed: int = 5) -> np.ndarray[Any, Any]:
    """Return groups of 1 to 4 vectors that nearly agree, around 12 topics."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(12, DIM))
    rows = []
    for i in range(n_groups):
        base = topics[i % 12] + rng.normal(size=DIM) * 0.8
        rows += [base + rng.normal(size=DIM) * 0.01 for _ in range(1 + i % 4)]
    x = np.array(rows)[rng.permutation(len(rows))].astype(np.float32)
    return x * rng.uniform(0.5, 3.0, size=(len(x), 1)).astype(np.float32)


def slow_greedy(order: list[int], x: np.ndarray[Any, Any], threshold: float) -> dict[int, int]:
    kept: list[int] = []
    gone: dict[int, int] = {}
    for i in order:
        best = max(kept, key=lambda k: float(x[k] @ x[i]), default=None)
        if best is not None and float(x[best] @ x[i]) >= threshold:
            gone[i] = best
        else:
            kept.append(i)
    return gone


@pytest.mark.parametrize("block", [1, 7, 64, 5000])
def test_what_goes_in_a_cluster_is_what_the_slow_twin_says(block: int) -> None:
    x, _ = unit_vectors(pa.array(made().tolist(), pa.list_(pa.float32())), "e", None)
    order = np.random.default_rng(1).permutation(len(x))
    gone, kept, likeness = greedy.duplicates_in_cluster(order, lambda rows: x[rows], 1 - EPS, block, 4096)
    assert dict(zip(gone.tolist(), kept.tolist(), strict=True)) == slow_greedy(order.tolist(), x, 1 - EPS)
    assert len(gone) > 100
    assert np.allclose(likeness, [x[a] @ x[b] for a, b in zip(gone, kept, strict=True)], atol=1e-5)


def test_equal_vectors_are_found_with_an_eps_of_0() -> None:
    once, _ = unit_vectors(pa.array(made()[:100].tolist(), pa.list_(pa.float32())), "e", None)
    assert np.einsum("ij,ij->i", once, once).min() < 1  # in float32
    x = np.concatenate([once, once])
    gone, kept, _ = greedy.duplicates_in_cluster(np.arange(200), lambda rows: x[rows], least_cosine(0), 7, 4096)
    assert (gone.tolist(), kept.tolist()) == (list(range(100, 200)), list(range(100)))
    assert [least_cosine(e) for e in (2e-6, 0.01, 0.5)] == [1 - 2e-6, 1 - 0.01, 0.5]


def test_documents_at_random_are_ordered_by_the_seed_of_their_strategy(tmp_path: Path) -> None:
    def order_seed(**how: Any) -> Any:
        return SemanticDeduplicationWorkflow("in", str(tmp_path), 1, eps=EPS, **how).passes().decision.order_seed

    assert order_seed(ranking_strategy=RankingStrategy.random()) == 42  # as it was
    assert order_seed(which_to_keep="random", random_state=5) == 5
    assert order_seed(ranking_strategy=RankingStrategy.random(7)) == 7
    meta = np.zeros(6, [("number", "<u4"), ("distance", "<f4"), ("rank", "<u8")])
    meta["number"] = np.arange(6)
    assert _order(meta, "random", 42).tolist() != _order(meta, "random", 7).tolist()


def test_kept_vectors_that_do_not_fit_are_read_again_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "KEPT_BLOCK", 32)
    x, _ = unit_vectors(pa.array(made().tolist(), pa.list_(pa.float32())), "e", None)
    reads: list[int] = []

    def read(rows: Any) -> Any:
        reads.append(len(rows))
        return x[rows]

    narrow = greedy.duplicates_in_cluster(np.arange(len(x)), read, 1 - EPS, 50, 32)
    wide = greedy.duplicates_in_cluster(np.arange(len(x)), lambda rows: x[rows], 1 - EPS, 50, 1 << 20)
    assert [a.tolist() for a in narrow] == [b.tolist() for b in wide]
    assert reads.count(32) > 10


def test_clusters_gather_what_belongs_together_and_do_not_depend_on_threads(tmp_path: Path) -> None:
    x, _ = unit_vectors(pa.array(made(900).tolist(), pa.list_(pa.float32())), "e", None)
    (tmp_path / "x").write_bytes(x.tobytes())
    options = kmeans.Options(12, seed=3)
    one = kmeans.fit(kmeans.Blocks(str(tmp_path / "x"), DIM, 1), options)
    two = kmeans.fit(kmeans.Blocks(str(tmp_path / "x"), DIM, 3), options)
    assert one.tobytes() == two.tobytes()
    assert np.allclose(np.linalg.norm(one, axis=1), 1, atol=1e-5)
    at, distance = kmeans.nearest(x, one)
    assert np.allclose(distance, 1 - (x * one[at]).sum(axis=1), atol=1e-5)
    worse = kmeans.nearest(
        x, kmeans.fit(kmeans.Blocks(str(tmp_path / "x"), DIM), kmeans.Options(12, max_iter=1, init="random"))
    )[1]
    assert distance.sum() < worse.sum()


def test_more_clusters_than_rows_and_rows_that_are_all_equal(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(np.tile(np.eye(1, 4, dtype=np.float32), (3, 1)).tobytes())
    assert kmeans.fit(kmeans.Blocks(str(tmp_path / "x"), 4), kmeans.Options(10)).shape == (3, 4)


def test_groups_hold_neighbours_that_fit_and_a_large_cluster_is_alone() -> None:
    assert _groups(np.array([3, 3, 3, 20, 1, 1]), 1, 7).tolist() == [0, 0, 1, 2, 3, 3]


def test_vectors_are_of_length_one_and_those_without_direction_are_reported() -> None:
    column = pa.array([[3.0, 4.0], None, [], [0.0, 0.0]], pa.list_(pa.float64()))
    x, has = unit_vectors(column, "e", None)
    assert x.tolist() == [[0.6000000238418579, 0.800000011920929], [0, 0], [0, 0], [0, 0]]
    assert has.tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    "column", [pa.nulls(2), pa.array([[], []]), pa.array([None, []], pa.list_(pa.float32()))], ids=str
)
def test_where_no_document_has_an_embedding_its_length_is_not_known(column: pa.Array) -> None:
    for dimension, width in ((None, 0), (5, 5)):
        x, has = unit_vectors(column, "e", dimension)
        assert (x.shape, has.tolist()) == ((2, width), [False, False])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0], [1.0]], "document 0 of this batch has 2 numbers, expected 1"),
        ([[1.0, float("nan")]], "not finite"),
        ([[1.0, None]], "null among its numbers"),
    ],
)
def test_embeddings_that_cannot_be_compared_are_refused(values: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        unit_vectors(pa.array(values, pa.list_(pa.float64())), "e", None)


def test_texts_are_no_embeddings() -> None:
    with pytest.raises(PipelineError, match="expected lists of numbers, got string"):
        unit_vectors(pa.array(["a"]), "e", None)


def test_ranks_order_numbers_both_ways_and_put_what_is_missing_last() -> None:
    column = pa.array([2.0, None, -1.0, 5.0])
    assert np.argsort(rank_numbers(column, "q", False)).tolist() == [2, 0, 3, 1]
    assert np.argsort(rank_numbers(column, "q", True)).tolist() == [3, 0, 2, 1]
    large = pa.array([1_700_000_000_000_000_257, None, 1_600_000_000_000_000_001])  # times in nanoseconds
    assert np.argsort(rank_numbers(large, "q", True)).tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": None, "perform_removal": True}, "eps: say how unlike"),
        ({"eps": 1.5}, "eps: expected a number"),
        ({"eps": 0.1, "fit_data_fraction": 1.5}, "fit_data_fraction: expected a number"),
        ({"which_to_keep": "best"}, "which_to_keep: expected one of hard, easy, random"),
        ({"n_clusters": 0}, "n_clusters: expected a whole number"),
        ({"distance_metric": "dot"}, "distance_metric: expected one of cosine, l2"),
        ({"n_init": 3}, "n_init"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SemanticDeduplicationWorkflow(str(tmp_path), str(tmp_path / "o"), **({"n_clusters": 4, "eps": EPS} | options))


def test_several_metadata_columns_are_refused() -> None:
    with pytest.raises(UsageError, match="one column of numbers"):
        RankingStrategy.metadata_based(["a", "b"])


def test_a_cluster_is_ranked_by_its_metadata_or_at_random() -> None:
    import pandas as pd

    frame = pd.DataFrame({"id": ["a", "b", "c"], "q": [2, 3, 1]})
    assert RankingStrategy.metadata_based(["q"]).rank_cluster(frame)["id"].tolist() == ["c", "a", "b"]
    assert RankingStrategy.metadata_based(["q"], ascending=False).rank_cluster(frame)["id"].tolist() == ["b", "a", "c"]
    assert sorted(RankingStrategy.random(3).rank_cluster(frame)["id"]) == ["a", "b", "c"]


# -- whole runs -------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("semantic")
    x = made()
    rows = [{"id": f"d{i}", "text": f"text {i}", "embeddings": row} for i, row in enumerate(x.tolist())]
    rows[7]["embeddings"] = None
    half = len(rows) // 2
    (folder / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows[:half]), folder / "in" / "a.parquet", row_group_size=64)
    pq.write_table(pa.Table.from_pylist(rows[half:]), folder / "in" / "b.parquet", row_group_size=64)
    (folder / "jsonl").mkdir()
    (folder / "jsonl" / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def survivors(output: Path) -> list[str]:
    found: list[str] = []
    for path in sorted(output.glob("*.parquet")):
        found += pq.read_table(path).column("id").to_pylist()
    for path in sorted(output.glob("*.jsonl")):
        found += [json.loads(line)["id"] for line in path.read_text().splitlines()]
    return sorted(found)


def test_a_run_removes_what_brute_force_within_one_cluster_removes(corpus: Path, tmp_path: Path) -> None:
    workflow = SemanticDeduplicationWorkflow(
        str(corpus / "in"), str(tmp_path / "out"), n_clusters=1, eps=EPS, which_to_keep="easy", perform_removal=True
    )
    result = workflow.run(memory="512MB", workers=1)
    x, has = unit_vectors(
        pa.concat_arrays(
            [c for p in ("a", "b") for c in pq.read_table(corpus / "in" / f"{p}.parquet").column("embeddings").chunks]
        ),
        "embeddings",
        None,
    )
    centre = x[has].sum(axis=0)
    centre /= np.linalg.norm(centre)
    order = [i for i in np.argsort(1 - x @ centre, kind="stable").tolist() if has[i]]
    expected = {f"d{i}" for i in range(len(x))} - {f"d{i}" for i in slow_greedy(order, x, 1 - EPS)}
    assert set(survivors(tmp_path / "out")) == expected
    assert "d7" in expected  # no embedding
    assert result.n_documents == len(x)
    assert result.n_duplicates == len(x) - len(expected) == result.run.ledger.n_dropped
    table = pa.concat_tables(pq.read_table(p) for p in Path(result.duplicates).glob("*.parquet"))
    assert len(table) == result.n_duplicates
    assert min(table.column("similarity").to_pylist()) >= 1 - EPS - 1e-6


def test_survivors_do_not_depend_on_memory_workers_block_size_or_format(corpus: Path, tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [
        {"path": "in", "memory": "512MB", "workers": 1, "filetype": "parquet", "blocksize": None},
        {"path": "in", "memory": "1GB", "workers": 2, "filetype": "parquet", "blocksize": "20KB"},
        {"path": "jsonl", "memory": "512MB", "workers": 2, "filetype": "jsonl", "blocksize": "30KB"},
    ]
    found, n_bytes = [], []
    for i, s in enumerate(settings):
        workflow = SemanticDeduplicationWorkflow(
            str(corpus / s["path"]),
            str(tmp_path / str(i)),
            8,
            eps=EPS,
            input_filetype=s["filetype"],
            perform_removal=True,
            input_blocksize=s["blocksize"],
        )
        n_bytes.append(workflow.run(memory=s["memory"], workers=s["workers"]).summary["duplicate_text_bytes"])
        found.append(survivors(tmp_path / str(i)))
    assert found[0] == found[1] == found[2]
    lines = (corpus / "jsonl" / "all.jsonl").read_text().splitlines()
    gone = sum(len(line) for line in lines if json.loads(line)["id"] not in set(found[0]))
    assert n_bytes[0] == n_bytes[1] > 0
    assert n_bytes[2] == gone
    assert 300 <= len(found[0]) < 500


def documents_without_embeddings() -> list[dict[str, Any]]:
    """Long stretches without the field, with null, with an empty list.

    Two of those that have one point the same way.
    """
    none: list[dict[str, Any]] = [{}, {"embeddings": None}, {"embeddings": []}]
    some = [{"embeddings": e} for e in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [2.0, 0.0, 0.0])]
    rows = [kind for kind in none for _ in range(30)] + some + [none[0]] * 30
    return [{"id": f"d{i:03d}", "text": "x" * 40, **row} for i, row in enumerate(rows)]


@pytest.mark.parametrize("blocksize", [None, "1KB"])
def test_documents_without_an_embedding_stay_however_the_input_is_cut(tmp_path: Path, blocksize: str | None) -> None:
    rows = documents_without_embeddings()
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workflow = SemanticDeduplicationWorkflow(
        str(tmp_path / "in.jsonl"),
        str(tmp_path / "out"),
        1,
        eps=EPS,
        input_filetype="jsonl",
        perform_removal=True,
        input_blocksize=blocksize,
        which_to_keep="easy",
    )
    result = workflow.run(InProcessExecutor(), progress=False, memory="512MB")
    assert (result.n_documents, result.n_duplicates, result.summary["n_without_text"]) == (123, 1, 120)
    assert survivors(tmp_path / "out") == [row["id"] for row in rows if row["id"] != "d092"]


def test_files_without_the_column_of_embeddings(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({"id": ["b"], "embeddings": pa.nulls(1)}), tmp_path / "in" / "b.parquet")
    pq.write_table(pa.table({"id": ["c", "d"], "embeddings": [[1.0, 2.0], [1.0, 2.0]]}), tmp_path / "in" / "c.parquet")
    workflow = SemanticDeduplicationWorkflow(str(tmp_path / "in"), str(tmp_path / "out"), 1, eps=EPS)
    assert workflow.run(InProcessExecutor(), progress=False, memory="512MB").n_duplicates == 1


def test_a_field_that_no_document_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    workflow = SemanticDeduplicationWorkflow(
        str(tmp_path / "in.jsonl"), str(tmp_path / "out"), 1, eps=EPS, input_filetype="jsonl"
    )
    with pytest.raises(PipelineError, match="reads the field 'embeddings', which no document has"):
        workflow.run(InProcessExecutor(), progress=False, memory="512MB")


def test_embeddings_of_two_lengths_end_the_run_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, n in (("a", 3), ("b", 4)):
        pq.write_table(pa.table({"id": ["x"], "embeddings": [[1.0] * n]}), tmp_path / "in" / f"{name}.parquet")
    workflow = SemanticDeduplicationWorkflow(str(tmp_path / "in"), str(tmp_path / "out"), 2, eps=EPS)
    with pytest.raises(UsageError, match="must be of one length"):
        workflow.run(memory="512MB", workers=1)


# -- where products are made ------------------------------------------------------------------------------------------
def test_torch_makes_the_same_decisions_as_blas() -> None:
    pytest.importorskip("torch", reason="the extra `models` is not installed")
    on_torch = products.OnTorch("cpu")
    x, _ = unit_vectors(pa.array(made().tolist(), pa.list_(pa.float32())), "e", None)
    order = np.random.default_rng(1).permutation(len(x))
    found = [
        greedy.duplicates_in_cluster(order, lambda rows: x[rows], 1 - EPS, 64, 4096, where)
        for where in (products.CPU, on_torch)
    ]
    assert [a.tolist() for a in found[0][:2]] == [a.tolist() for a in found[1][:2]]
    assert np.allclose(found[0][2], found[1][2], atol=1e-6)
    at, top = on_torch.best(x[:9], on_torch.hold(x[9:40]))
    wanted = products.CPU.best(x[:9], x[9:40])
    assert at.tolist() == wanted[0].tolist()
    assert np.allclose(top, wanted[1], atol=1e-6)


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_a_whole_cluster_is_decided_as_its_blocks_are(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, chains, in which every document is like its neighbours only, and more pairs than are copied."""
    pytest.importorskip("torch", reason="the extra `models` is not installed")
    on_torch = products.OnTorch("cpu")
    angle = np.concatenate([np.arange(150) * 0.19, np.full(20, 40.0)])
    chain = np.zeros((len(angle), made().shape[1]), np.float32)
    chain[:, 0], chain[:, 1] = np.cos(angle), np.sin(angle)
    for x in (made()[:400], chain):
        order = np.random.default_rng(2).permutation(len(x))
        whole = greedy.duplicates_in_cluster(order, lambda rows, x=x: x[rows], 1 - EPS, block, 4096, on_torch)  # type: ignore[misc]
        assert len(whole[0]) > 20
        for limits in ({"WHOLE_ROWS": 10}, {"MAX_PAIRS": 3}):
            with monkeypatch.context() as patch:
                for name, value in limits.items():
                    patch.setattr(greedy, name, value)
                blocks = greedy.duplicates_in_cluster(order, lambda rows, x=x: x[rows], 1 - EPS, block, 4096, on_torch)  # type: ignore[misc]
            assert whole[0].tolist() == blocks[0].tolist()
            assert np.allclose(whole[2], blocks[2], atol=1e-6)
            same = whole[1] == blocks[1]  # of equally near ones either may be named
            near = np.einsum("ij,ij->i", x[whole[1][~same]], x[blocks[1][~same]])
            assert (near > 1 - EPS).all()


@pytest.mark.parametrize("ends", ["waits", "has died", "pass fails"])
def test_a_solver_that_starts_early_waits_for_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """It counts in the budget of the pass; without it, or without a task for it, nothing is different."""
    rows = {"id": ["a", "b", "c"], "embeddings": [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    seen: list[Any] = []
    begin = EarlyProcess.begin

    def noting(early: EarlyProcess) -> Any:
        if ends == "has died":
            early._process.kill()
            early._process.wait()
        seen.append(begin(early))
        return seen[-1]

    def passing(*_: Any) -> Any:
        seen.append(counted_processes.pids())
        assert counted_processes.reserved_bytes() >= 50_000_000
        if ends == "pass fails":
            raise KeyboardInterrupt
        return run_key_pass(*_)

    monkeypatch.setattr(EarlyProcess, "begin", noting)
    monkeypatch.setattr(key_comparison, "run_key_pass", passing)
    monkeypatch.setattr(CompareVectors, "preparation", lambda _: Preparation("time:sleep", 50_000_000))
    workflow = SemanticDeduplicationWorkflow(str(tmp_path / "in.parquet"), str(tmp_path / "out"), 1, eps=EPS)
    if ends == "pass fails":
        with pytest.raises(KeyboardInterrupt):
            workflow.run(progress=False, memory="2GB", workers=1)
    else:
        assert workflow.run(progress=False, memory="2GB", workers=1).n_duplicates == 1
        assert (seen[1] is None) == (ends == "has died")
    assert len(seen[0]) == 1
    assert not os.path.exists(f"/proc/{seen[0][0]}")
    assert counted_processes.pids() == []


class Clocked:
    """Pretends to be a GPU, so fast."""

    name = "gpu"

    def __init__(self, clock: list[float], seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def hold(self, vectors: Any) -> Any:
        return vectors

    def best(self, x: Any, held: Any) -> Any:
        self._clock[0] += self._seconds
        return products.CPU.best(x, held)


def test_auto_takes_what_is_faster_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(backend: str, seconds: float, room: int = 8 * 10**9, n_gpus: int = 1) -> tuple[str, str]:
        clock = [0.0]
        real = products.CPU.best
        monkeypatch.setattr(
            products.CPU, "best", lambda x, held: (clock.__setitem__(0, clock[0] + 1.0), real(x, held))[1]
        )
        made = products.choose(backend, 8, room, None, n_gpus, lambda: Clocked(clock, seconds), lambda: clock[0])
        monkeypatch.undo()
        return made.products.name, made.why

    # The fake calls the CPU's product, which takes a second of its own.
    assert chosen("auto", -0.75) == ("gpu", "measured: 4.0 times as fast as the cpu here")
    assert chosen("auto", 2.0) == ("cpu", "measured: 3.0 times as fast as the gpu here")
    assert chosen("auto", 0.1, n_gpus=0) == ("cpu", "there is no GPU")
    assert chosen("auto", 0.1, room=10**9) == ("cpu", "starting a GPU takes 2 GB of memory, and there are 1.0")
    assert chosen("cpu", 0.1) == ("cpu", "as asked for")
    assert chosen("gpu", 0.1) == ("gpu", "as asked for")
    with pytest.raises(UsageError, match="this machine has no GPU"):
        chosen("gpu", 0.1, n_gpus=0)


def test_a_gpu_that_cannot_be_started_is_an_error_or_the_cpu() -> None:
    def broken() -> Any:
        raise RuntimeError("no driver")

    assert "no driver" in products.choose("auto", 8, 10**10, None, 1, broken).why
    with pytest.raises(UsageError, match=r"torch cannot use the GPU .*no driver.* or use --backend cpu"):
        products.choose("gpu", 8, 10**10, None, 1, broken)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_samples_per_batch": 10}, "max_samples_per_batch is for its stages one by one"),
        ({"metadata_fields": ["grade"]}, "metadata_fields is for its stages one by one"),
        ({"cache_kwargs": {"compression": "gzip"}}, "cache_kwargs is about files between its stages"),
        ({"write_kwargs": {"compression": "gzip"}}, "write_kwargs is not used"),
    ],
)
def test_parameters_that_have_another_means_here_are_reported(given: dict[str, Any], message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        SemanticDeduplicationWorkflow("in", "out", 2, eps=0.1, **given)


def found_alone(folder: Path, settings: dict[str, Any] | None = None, **how: Any) -> Any:
    workflow = SemanticDeduplicationWorkflow(
        str(folder / "in.parquet"), str(folder / "out"), 1, eps=EPS, which_to_keep="easy", **how
    )
    return workflow.run(InProcessExecutor(), progress=False, memory="512MB", **(settings or {}))


def ids_in(folder: Path) -> list[str]:
    return sorted(
        i for p in (folder / "out" / "duplicates").glob("*.parquet") for i in pq.read_table(p)["id"].to_pylist()
    )


def test_ids_are_those_of_the_input_that_was_compared(tmp_path: Path) -> None:
    rows = {"id": ["a", "b", "c"], "other": ["x", "y", "z"], "embeddings": [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    found_alone(tmp_path)
    assert ids_in(tmp_path) == ["c"]
    made = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out" / "duplicates").glob("*.parquet")}
    pq.write_table(pa.table({name: values[::-1] for name, values in rows.items()}), tmp_path / "in.parquet")
    for options in ({}, {"id_field": "other"}):
        with pytest.raises(RunConflict, match=r"already has the result of other input: .*in\.parquet"):
            found_alone(tmp_path, **options)
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out" / "duplicates").glob("*.parquet")} == made
    found_alone(tmp_path, {"fresh": True})
    assert ids_in(tmp_path) == ["a"]
    assert found_alone(tmp_path, id_field="other").status == "already"
    assert ids_in(tmp_path) == ["x"]


def test_ids_are_made_again_where_their_pass_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"id": ["a", "b"], "embeddings": [[1.0, 0.0], [2.0, 0.0]]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    with monkeypatch.context() as killed:
        killed.setattr(
            "tamis.dedup.nemo_compat.id_files.OwnIds.process", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            found_alone(tmp_path)
    found_alone(tmp_path)
    assert ids_in(tmp_path) == ["b"]


def test_ids_of_shards_are_written_when_they_are_joined(tmp_path: Path) -> None:
    rows = {"id": ["a", "b", "c"], "embeddings": [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    for part in ("0/2", "1/2"):
        assert found_alone(tmp_path, {"shard": part}).status == "shard"
        assert not (tmp_path / "out" / "duplicates").exists()
    assert found_alone(tmp_path, {"merge": True}).n_duplicates == 1
    assert ids_in(tmp_path) == ["c"]


def test_ids_of_what_goes_are_for_the_workflow_that_removes(tmp_path: Path) -> None:
    rows = {"doc": ["a", "b", "c"], "embeddings": [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    with pytest.warns(
        UserWarning, match=r"id_field='id': no ids were written to .*/out/duplicates .*which no document has"
    ):
        assert found_alone(tmp_path).n_duplicates == 1
    assert not (tmp_path / "out" / "duplicates").exists()  # an empty one would say that there are none
    assert found_alone(tmp_path, id_field="doc").status == "already"
    ids = [pq.read_table(p) for p in (tmp_path / "out" / "duplicates").glob("*.parquet")]
    assert [t.to_pydict() for t in ids] == [{"id": ["c"]}]
    left = TextDuplicatesRemovalWorkflow(
        str(tmp_path / "in.parquet"), str(tmp_path / "out" / "duplicates"), str(tmp_path / "left"), id_field="doc"
    )
    assert left.run(InProcessExecutor(), progress=False, memory="512MB").n_duplicates == 1
    assert sorted(r for p in (tmp_path / "left").glob("*.parquet") for r in pq.read_table(p)["doc"].to_pylist()) == [
        "a",
        "b",
    ]


def test_hints_of_the_stages_are_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from tamis.dedup.semantic.stages import IdentifyDuplicatesStage
    from tamis.tasks import FileGroupTask

    pairs = pa.table(
        {
            "id": list("abcd"),
            "max_id": list("aaaa"),
            "cosine_sim_score": pa.array([0.0, 0.99, 0.98, 0.97], pa.float32()),
        }
    )
    pq.write_table(pairs, tmp_path / "cluster_0.parquet")
    stage = IdentifyDuplicatesStage(str(tmp_path / "out"), eps=0.05, _num_row_groups_hint=3, verbose=True)
    with caplog.at_level("INFO", "tamis"):
        (made,) = stage.process(FileGroupTask("", [str(tmp_path / "cluster_0.parquet")])).data
    assert pq.ParquetFile(made).num_row_groups == 3
    assert "identify_duplicates: 3 duplicates in 1 files" in caplog.text


@pytest.mark.parametrize("which", ["hard", "random"])
def test_vectors_that_stay_on_a_device_give_what_those_out_of_core_do(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """An OnTorch of the CPU stands for a GPU."""
    pytest.importorskip("torch", reason="the extra `models` is not installed")
    monkeypatch.setattr(solver, "choose", lambda *_: products.Choice(products.OnTorch("cpu"), "for this test"))
    stages: list[Any] = [ParquetReader(str(corpus / "in")), DocumentVectors(), RecordWriter(str(tmp_path / "records"))]
    files = Pipeline("vectors", stages=stages).run(InProcessExecutor(), progress=False)
    records = Records([path for task in files for path in task.data])
    step = CompareVectors(3, 300, 1e-4, 42, "k-means||", 2.0, None, which, 64, EPS, 42)
    task = SolverTask([], [], "", 1 << 20, 1, 0)
    found, summaries = [], []
    for free_bytes in (0, 1 << 30):
        monkeypatch.setattr(products.OnTorch, "free_bytes", free_bytes)
        (tmp_path / str(free_bytes)).mkdir()
        run = SolverRun(str(tmp_path / str(free_bytes)), task)
        decisions = DecisionFiles(run.path("found"), len(records), 1 << 20)
        summaries.append(solver.semantic_duplicates(records, decisions, step, run))
        found.append([list(zip(d.number, d.kept, d.similarity, d.size, strict=True)) for d in decisions])
    assert found[0] == found[1]
    assert len(found[0][0]) > 100
    assert list(summaries[1].pop("phase_seconds")) == ["to the device", "clusters", "assignment", "pairs"]
    assert summaries[0] == summaries[1]
