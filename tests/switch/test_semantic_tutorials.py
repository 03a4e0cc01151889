"""Semantic deduplication in the manner of the original's tutorials: in one workflow, and step by step."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.optional import optional

torch = optional("torch", reason="the extra `models` is not installed")
transformers = optional("transformers", reason="the extra `models` is not installed")

from tamis import InProcessExecutor  # noqa: E402
from tamis.errors import UsageError  # noqa: E402
from tamis.pipeline import Pipeline  # noqa: E402
from tamis.stages.deduplication.id_generator import (  # noqa: E402
    create_id_generator_actor,
    kill_id_generator_actor,
    write_id_generator_to_disk,
)
from tamis.stages.deduplication.semantic import (  # noqa: E402
    IdentifyDuplicatesStage,
    RankingStrategy,
    SemanticDeduplicationWorkflow,
)
from tamis.stages.file_partitioning import FilePartitioningStage  # noqa: E402
from tamis.stages.text.deduplication.removal_workflow import TextDuplicatesRemovalWorkflow  # noqa: E402
from tamis.stages.text.deduplication.semantic import TextSemanticDeduplicationWorkflow  # noqa: E402
from tamis.stages.text.embedders.vllm import VLLMEmbeddingModelStage  # noqa: E402
from tamis.stages.text.io.reader import ParquetReader  # noqa: E402
from tamis.stages.text.io.writer import ParquetWriter  # noqa: E402
from tamis.tasks import DocumentBatch  # noqa: E402
from tests.stages.text.models import small_models as small  # noqa: E402

N = 30
SETTINGS: dict[str, Any] = {"memory": "2GB", "progress": False}


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a model of the architecture of EmbeddingGemma: Gemma 3, the mean of its states, two dense layers."""
    from safetensors.torch import save_file

    folder = small.gemma(tmp_path_factory.mktemp("gemma") / "model")
    modules = ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
    listed = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if not i else f"{i}_{name}",
            "type": f"sentence_transformers.models.{name}",
        }
        for i, name in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    torch.manual_seed(1)
    for name, (rows, columns) in {"2_Dense": (48, 32), "3_Dense": (32, 48)}.items():
        (folder / name).mkdir()
        settings = {"in_features": columns, "out_features": rows, "bias": False}
        settings["activation_function"] = "torch.nn.modules.linear.Identity"
        (folder / name / "config.json").write_text(json.dumps(settings))
        save_file({"linear.weight": torch.randn(rows, columns)}, folder / name / "model.safetensors")
    return str(folder)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    texts = small.texts(N)
    (tmp_path / "input").mkdir()
    for number in range(3):
        part = texts[number * 10 : number * 10 + 10]
        part[0] = texts[0]  # the same text in every file
        frame = pd.DataFrame({"id": [f"{number}-{i}" for i in range(10)], "text": part, "kind": number})
        frame.to_parquet(tmp_path / "input" / f"part_{number}.parquet", index=False)
    return tmp_path / "input"


def tables(folder: Path | str) -> pd.DataFrame:
    return pd.concat([pd.read_parquet(path) for path in sorted(Path(folder).glob("*.parquet"))], ignore_index=True)


def test_dense_layers_follow_the_pooling(embedder: str) -> None:
    texts = ["one two three", "four five", None]
    batch = VLLMEmbeddingModelStage(embedder).process(DocumentBatch("d", pa.table({"text": texts})))
    tokenizer = transformers.AutoTokenizer.from_pretrained(embedder)
    model = transformers.AutoModel.from_pretrained(embedder).eval()
    from safetensors.torch import load_file

    layers = [load_file(Path(embedder) / n / "model.safetensors")["linear.weight"] for n in ("2_Dense", "3_Dense")]
    for text, found in zip(texts, batch.column("embeddings").to_pylist(), strict=True):
        if text is None:
            assert found is None
            continue
        with torch.no_grad():
            hidden = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
            wanted = torch.nn.functional.normalize(layers[1] @ (layers[0] @ hidden), dim=0)
        assert np.allclose(found, wanted.numpy(), atol=1e-4)


def test_one_workflow_from_texts_to_documents_that_stay(source: Path, tmp_path: Path, embedder: str) -> None:
    cache, output = tmp_path / "cache", tmp_path / "output"
    workflow = TextSemanticDeduplicationWorkflow(
        input_path=str(source), output_path=str(output), cache_path=str(cache), perform_removal=True,
        text_field="text", model_identifier=embedder, embedding_max_chars=None, embedding_pretokenize=False,
        n_clusters=3, id_field="id", eps=0.0001, metadata_fields=["kind"],
        ranking_strategy=RankingStrategy(metadata_cols=["cosine_dist_to_cent"], ascending=True),
        pairwise_batch_size=1024, use_id_generator=False, id_generator_state_file=None, input_filetype="parquet",
        input_files_per_partition=1, output_filetype="parquet", verbose=True, clear_output=True,
    )  # fmt: skip
    result = workflow.run(InProcessExecutor(), **SETTINGS)
    embeddings = tables(cache / "embeddings")
    assert list(embeddings.columns) == ["id", "embeddings", "kind"]
    assert len(embeddings) == N
    clusters = [tables(p) for p in sorted((cache / "semantic_dedup/kmeans_results").glob("centroid=*"))]
    assert sum(map(len, clusters)) == N
    assert {"id", "embeddings", "kind", "cosine_dist_to_cent", "l2_dist_to_cent"} == set(clusters[0].columns)
    pairs = tables(cache / "semantic_dedup/pairwise_results")
    assert list(pairs.columns) == ["id", "max_id", "cosine_sim_score"]
    ids = set(tables(output / "duplicates")["id"])
    kept = tables(output / "deduplicated")
    same = {"0-0", "1-0", "2-0"}
    assert len(ids & same) == 2
    assert set(kept["id"]) == set(embeddings["id"]) - ids
    assert list(kept.columns) == ["id", "text", "kind"]
    assert result.metadata["num_duplicates"] == result.get_metadata("num_duplicates_removed") == len(ids)
    assert set(result.pipeline_tasks) >= {"embeddings", "kmeans", "pairwise"}
    again = workflow.run(InProcessExecutor(), **SETTINGS)
    assert again.metadata["num_duplicates"] == len(ids)


def test_numbers_of_the_id_generator_and_output_fields(source: Path, tmp_path: Path, embedder: str) -> None:
    output = tmp_path / "output"
    workflow = TextSemanticDeduplicationWorkflow(
        str(source), str(output), model_identifier=embedder, n_clusters=2, eps=0.0001, use_id_generator=True,
        output_fields=["text"], output_filetype="jsonl",
    )  # fmt: skip
    result = workflow.run(InProcessExecutor(), **SETTINGS)
    assert (output / "semantic_id_generator.json").exists()
    assert list(tables(output / "embeddings").columns) == ["_curator_dedup_id", "embeddings"]
    lines = [json.loads(x) for p in (output / "deduplicated").glob("*.jsonl") for x in p.read_text().splitlines()]
    assert len(lines) == N - result.metadata["num_duplicates"] < N
    assert set(lines[0]) == {"text"}


def test_step_by_step(source: Path, tmp_path: Path, embedder: str) -> None:
    cache, output = tmp_path / "cache", tmp_path / "output"
    output.mkdir()
    create_id_generator_actor()
    try:
        Pipeline(
            "embedding_pipeline",
            stages=[
                ParquetReader(file_paths=str(source), files_per_partition=1, fields=["text"], _generate_ids=True),
                VLLMEmbeddingModelStage(
                    model_identifier=embedder, text_field="text", max_chars=None, pretokenize=False
                ),
                ParquetWriter(path=str(cache / "embeddings"), fields=["_curator_dedup_id", "embeddings"]),
            ],
        ).run(InProcessExecutor(), **SETTINGS)
        write_id_generator_to_disk(str(output / "semantic_id_generator.json"))
    finally:
        kill_id_generator_actor()
    semantic = cache / "semantic_dedup"
    result = SemanticDeduplicationWorkflow(
        input_path=str(cache / "embeddings"), output_path=str(semantic), n_clusters=3, id_field="_curator_dedup_id",
        embedding_field="embeddings", eps=None,
        ranking_strategy=RankingStrategy(metadata_cols=["cosine_dist_to_cent"], ascending=True),
    ).run(InProcessExecutor(), **SETTINGS)  # fmt: skip
    assert result.metadata["num_duplicates"] == 0
    assert not (semantic / "duplicates").exists()
    assert (semantic / "kmeans_results/centroid=0").is_dir()
    names = os.listdir(semantic / "pairwise_results")
    assert "cluster_0.parquet" in names
    scores = Counter()
    for name in names:
        scores.update(pd.read_parquet(semantic / "pairwise_results" / name)["cosine_sim_score"].round(2))
    assert scores.total() == N
    Pipeline(
        "identify",
        stages=[
            FilePartitioningStage(file_paths=str(semantic / "pairwise_results"), files_per_partition=1),
            IdentifyDuplicatesStage(output_path=str(output / "duplicates"), eps=0.0001),
        ],
    ).run(InProcessExecutor(), **SETTINGS)
    n_ids = sum(pq.read_metadata(p).num_rows for p in (output / "duplicates").glob("*.parquet"))
    removed = TextDuplicatesRemovalWorkflow(
        input_path=str(source), ids_to_remove_path=str(output / "duplicates"),
        output_path=str(output / "deduplicated"), input_filetype="parquet", input_fields=["text"],
        input_files_per_partition=1, output_filetype="parquet", output_fields=["text", "_curator_dedup_id"],
        duplicate_id_field="id", id_generator_path=str(output / "semantic_id_generator.json"),
    ).run(executor=InProcessExecutor(), **SETTINGS)  # fmt: skip
    assert removed.metadata["num_duplicates_removed"] == n_ids >= 2
    tasks = removed.pipeline_tasks["removal"]
    assert sum(task._stage_perf[1].num_items_processed for task in tasks) == N
    assert sum(task._stage_perf[-1].num_items_processed for task in tasks) == N - n_ids
    assert list(tables(output / "deduplicated").columns) == ["text", "_curator_dedup_id"]


def test_parameters_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs eps"):
        TextSemanticDeduplicationWorkflow(str(tmp_path), str(tmp_path / "out"), eps=None)
    with pytest.raises(UsageError, match="leave one out"):
        TextSemanticDeduplicationWorkflow(str(tmp_path), str(tmp_path / "out"), use_id_generator=True, id_field="id")


class FakeEngine:
    """Stands for vLLM, which is not installed where this runs: records what it is given."""

    seen: list[Any] = []

    def embed(self, prompts: list[Any], **settings: Any) -> list[Any]:
        self.seen.append((prompts, settings))
        row = type("Row", (), {})
        outputs = []
        for prompt in prompts:
            answer = row()
            answer.outputs = row()
            answer.outputs.embedding = [float(len(prompt)), 0.0]
            outputs.append(answer)
        return outputs


def test_in_vllm_texts_are_cut_and_nulls_left_out(monkeypatch: pytest.MonkeyPatch, embedder: str) -> None:
    from tamis.stages.text.embedders import vllm

    monkeypatch.setattr(vllm, "has_vllm", lambda: True)
    monkeypatch.setattr(vllm, "count_gpus", lambda: 1)
    made: list[Any] = []
    monkeypatch.setattr(
        "tamis.stages.video.models.vllm_chat.make_engine",
        lambda folder, settings: made.append(settings) or FakeEngine(),
    )
    stage = VLLMEmbeddingModelStage(
        embedder, vllm_init_kwargs={"gpu_memory_utilization": 0.5}, pretokenize=False, max_chars=3,
        model_inference_batch_size=1, embedding_output_dtype="float16",
    )  # fmt: skip
    batch = stage.process(DocumentBatch("d", pa.table({"text": ["abcd", None, "x"]})))
    assert [None if row is None else row[0] for row in batch.column("embeddings").to_pylist()] == [3.0, None, 1.0]
    assert batch.column("embeddings").type == pa.large_list(pa.float16())
    assert made[0]["gpu_memory_utilization"] == 0.5
    assert made[0]["runner"] == "pooling"
    assert [len(prompts) for prompts, _ in FakeEngine.seen] == [1, 1]
