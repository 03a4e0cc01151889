"""Fuzzy deduplication in single stages, with the documented files between them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor
from tamis.backends.local import LocalExecutor
from tamis.errors import UsageError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.fuzzy.buckets_to_edges import BucketsToEdgesStage
from tamis.stages.deduplication.fuzzy.connected_components import ConnectedComponentsStage
from tamis.stages.deduplication.fuzzy.identify_duplicates import IdentifyDuplicatesStage
from tamis.stages.deduplication.fuzzy.lsh import LSHStage
from tamis.stages.deduplication.fuzzy.minhash import MinHashStage
from tamis.stages.deduplication.id_generator import (
    CURATOR_DEDUP_ID_STR,
    create_id_generator_actor,
    kill_id_generator_actor,
    write_id_generator_to_disk,
)
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.text.deduplication.removal_workflow import TextDuplicatesRemovalWorkflow
from tamis.stages.text.io.reader import JsonlReader
from tamis.tasks import DocumentBatch, FileGroupTask

RUN: dict[str, Any] = {"memory": "600MB", "progress": False}
COPIES = {("a", 0), ("b", 3), ("b", 7)}  # three nearly equal texts
TWINS = {("a", 5), ("a", 6)}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Path]:
    rng = random.Random(1)
    words = [f"word{i}" for i in range(400)]
    near = [rng.choice(words) for _ in range(200)]
    (tmp_path / "in").mkdir()
    for name in "ab":
        rows = []
        for i in range(10):
            text = [rng.choice(words) for _ in range(60)]
            if (name, i) in COPIES:
                text = [*near, name, str(i)]
            if (name, i) in TWINS:
                text = ["the", "same", "text", "in", "two", "documents", "of", "one", "file"] * 3
            rows.append({"id": f"{name}{i}", "text": " ".join(text)})
        rows.append({"id": f"{name}-none", "text": None})
        (tmp_path / f"in/{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    create_id_generator_actor()
    yield tmp_path / "in"
    kill_id_generator_actor()


def table(folder: Path) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(p) for p in sorted(folder.rglob("*.parquet"))], ignore_index=True)


def later_steps(cache: Path, output: Path, executor: Any) -> None:
    lsh = Pipeline(
        "lsh",
        stages=[
            FilePartitioningStage(str(cache / "MinHashStage"), blocksize="2GiB", file_extensions=[".parquet"]),
            LSHStage(20, 13, output_path=str(cache), bands_per_iteration=6),
        ],
    ).run(executor, **RUN)
    stages: list[Any] = [
        BucketsToEdgesStage(output_path=str(cache)),
        ConnectedComponentsStage(output_path=str(cache)),
        IdentifyDuplicatesStage(output_path=str(output)),
    ]
    Pipeline("components", stages=stages).run(executor, initial_tasks=lsh, **RUN)


@pytest.mark.parametrize("make_executor", [InProcessExecutor, LocalExecutor])
def test_the_steps_find_what_is_alike(source: Path, tmp_path: Path, make_executor: Any) -> None:
    cache, output = tmp_path / "cache", tmp_path / "out"
    stages: list[Any] = [
        FilePartitioningStage(str(source), files_per_partition=1),
        MinHashStage(output_path=str(cache), read_format="jsonl"),
    ]
    Pipeline("minhash", stages=stages).run(make_executor(), **RUN)
    signatures = table(cache / "MinHashStage")
    assert list(signatures.columns) == [CURATOR_DEDUP_ID_STR, "_minhash_signature"]
    assert len(signatures) == 22
    assert signatures["_minhash_signature"].isna().sum() == 2
    assert {len(values) for values in signatures["_minhash_signature"].dropna()} == {260}
    later_steps(cache, output, make_executor())
    buckets = table(cache / "LSHStage")
    assert list(buckets.columns) == ["_bucket_id", CURATOR_DEDUP_ID_STR]
    assert buckets["_bucket_id"].is_unique
    assert sorted(p.name for p in (cache / "LSHStage").iterdir())[0] == "band_0-band_6"
    edges = table(cache / "BucketsToEdgesStage")
    assert list(edges.columns) == [f"{CURATOR_DEDUP_ID_STR}_x", f"{CURATOR_DEDUP_ID_STR}_y"]
    groups = table(cache / "ConnectedComponentsStage").groupby("_duplicate_group_id")[CURATOR_DEDUP_ID_STR].agg(set)
    assert sorted(map(len, groups)) == [2, 3]
    ids = set(table(output / "FuzzyDuplicateIds")[CURATOR_DEDUP_ID_STR])
    assert [len(group) - len(group & ids) for group in groups] == [1, 1]
    generator = str(output / "fuzzy_id_generator.json")
    write_id_generator_to_disk(generator)
    removed = TextDuplicatesRemovalWorkflow(
        input_path=str(source), ids_to_remove_path=str(output / "FuzzyDuplicateIds"),
        output_path=str(tmp_path / "kept"), input_filetype="jsonl", output_filetype="jsonl",
        duplicate_id_field=CURATOR_DEDUP_ID_STR, id_generator_path=generator,
    ).run(executor=InProcessExecutor(), **RUN)  # fmt: skip
    assert removed.get_metadata("num_duplicates_removed") == 3
    kept = {json.loads(x)["id"] for p in (tmp_path / "kept").glob("*.jsonl") for x in p.read_text().splitlines()}
    for alike in (COPIES, TWINS):
        assert len(kept & {f"{name}{i}" for name, i in alike}) == 1
    later_steps(cache, output, make_executor())  # replaces what the first call wrote
    assert set(table(output / "FuzzyDuplicateIds")[CURATOR_DEDUP_ID_STR]) == ids


def test_batches_with_ids_have_the_same_signatures(source: Path, tmp_path: Path) -> None:
    files: list[Any] = [FilePartitioningStage(str(source), files_per_partition=1), MinHashStage(str(tmp_path / "a"))]
    Pipeline("files", stages=files).run(InProcessExecutor(), **RUN)
    batches: list[Any] = [JsonlReader(str(source), _generate_ids=True), MinHashStage(str(tmp_path / "b"))]
    Pipeline("batches", stages=batches).run(InProcessExecutor(), **RUN)
    both = [table(tmp_path / n / "MinHashStage").sort_values(CURATOR_DEDUP_ID_STR, ignore_index=True) for n in "ab"]
    pd.testing.assert_frame_equal(both[0], both[1])


def test_groups_are_merged_into_documents(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    files: list[Any] = [FilePartitioningStage(str(source)), MinHashStage(str(cache))]
    Pipeline("files", stages=files).run(InProcessExecutor(), **RUN)
    later_steps(cache, tmp_path / "out", InProcessExecutor())
    groups = table(cache / "ConnectedComponentsStage")

    class Merge(ProcessingStage[DocumentBatch, DocumentBatch]):
        name = "merge"

        def process(self, batch: DocumentBatch) -> DocumentBatch:
            merged = batch.to_pandas().merge(groups, how="inner", on=[CURATOR_DEDUP_ID_STR])
            return DocumentBatch(dataset_name=batch.dataset_name, data=merged)

    tasks = Pipeline("look", stages=[JsonlReader(str(source), _assign_ids=True), Merge()]).run(
        InProcessExecutor(), **RUN
    )
    merged = pd.concat([batch.to_pandas() for batch in tasks]).sort_values("_duplicate_group_id")
    assert sorted(merged["id"]) == sorted(f"{name}{i}" for name, i in COPIES | TWINS)


def test_other_files_are_left_alone_and_mistakes_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "cache/LSHStage").mkdir(parents=True)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "cache/LSHStage/mine.parquet")
    minhash = MinHashStage(str(tmp_path / "cache"), num_hashes=20)
    made = minhash.process(FileGroupTask("set", [str(source / "a.jsonl")]))
    assert pq.read_metadata(made.data[0]).num_rows == 11
    with pytest.raises(UsageError, match=r"mine\.parquet was not written by this stage"):
        LSHStage(2, 5, bands_per_iteration=2, output_path=str(tmp_path / "cache")).process(made)
    with pytest.raises(UsageError, match="20 values per document, and 20 bands of 13 take 260"):
        LSHStage(20, 13, output_path=str(tmp_path / "other")).process(made)
    kill_id_generator_actor()
    with pytest.raises(UsageError, match="begin one with create_id_generator_actor"):
        MinHashStage(str(tmp_path / "cache")).process(FileGroupTask("set", [str(source / "b.jsonl")]))
    create_id_generator_actor()
