"""Tokenizers and processors by transformers, without the code that a model may bring along."""

from __future__ import annotations

import errno
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tamis.errors import UsageError
from tamis.failures import is_memory_failure
from tamis.stages.text.models.custom_code import custom_code
from tamis.stages.text.models.folder import open_folder
from tamis.stages.text.models.tokenizer import Tokenizer
from tamis.stages.text.pretrained import from_pretrained
from tests.support.optional import optional

transformers = optional("transformers", reason="the extra `models` is not installed")


@pytest.mark.parametrize("name", ["processor_config.json", "preprocessor_config.json"])
def test_code_of_a_processor_is_refused_without_a_prompt(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own"}))
    (tmp_path / name).write_text(json.dumps({"auto_map": {"AutoProcessor": "own.Own"}}))
    (tmp_path / "own.py").write_text("raise SystemExit('this must not run')")
    with pytest.raises(
        UsageError,
        match=r"a chat model: .*\(auto_map\), which is refused; choose a model that does without$",
    ):
        from_pretrained("AutoProcessor", str(tmp_path), "a chat model", local_files_only=True)


def test_a_folder_is_refused_with_advice_that_its_user_can_follow(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    (tmp_path / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "own.Own"}}))
    save_file({"a": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"which is refused; choose a model that does without$"):
        open_folder(tmp_path)
    with pytest.raises(UsageError, match=r"ask for it with trust_remote_code=True \(--trust-remote-code\)$"):
        open_folder(tmp_path, trust_remote_code=False)
    assert open_folder(tmp_path, trust_remote_code=True).path == tmp_path


def test_a_failed_allocation_is_no_fault_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fails)
    (tmp_path / "config.json").write_text("{}")
    for load in (lambda: from_pretrained("AutoTokenizer", str(tmp_path), "a filter"), lambda: Tokenizer(tmp_path)):
        with pytest.raises(OSError, match="Cannot allocate memory") as found:
            load()
        assert is_memory_failure(found.value)


def test_damaged_files_are_reported_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UsageError, match=r"a chat model: .* cannot be loaded"):
        from_pretrained("AutoTokenizer", str(tmp_path), "a chat model", local_files_only=True)


SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "DebertaV2Model", "LlamaForCausalLM"])
def test_models_of_transformers_have_no_custom_code(kind: str) -> None:
    model = getattr(transformers, kind)
    assert custom_code(model(model.config_class(**SMALL))) == ""


def test_custom_code_is_detected_wherever_it_is_put(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.bert import modeling_bert

    def bert() -> Any:
        return transformers.BertModel(transformers.BertConfig(**SMALL))

    class Derived(transformers.BertModel):  # type: ignore[misc, name-defined]
        pass

    assert custom_code(Derived(transformers.BertConfig(**SMALL))).endswith("Derived")
    model = bert()
    model.pooler.forward = model.pooler.forward
    assert custom_code(model) == "forward of BertPooler"
    model = bert()
    model.encoder.layer[0].feed_forward_chunk = functools.partial(lambda x: x)
    assert custom_code(model) == "feed_forward_chunk of BertLayer"
    model = bert()
    model.embeddings.register_forward_hook(lambda *_: None)
    assert custom_code(model) == "forward of BertEmbeddings"
    model = bert()
    with monkeypatch.context() as patch:
        patch.setattr(
            modeling_bert.BertSelfAttention,
            "forward",
            functools.wraps(modeling_bert.BertSelfAttention.forward)(lambda *_: None),
        )
        assert custom_code(model) == "forward of BertSelfAttention"
    with monkeypatch.context() as patch:
        patch.setattr(modeling_bert, "eager_attention_forward", lambda *_: None)
        assert custom_code(model) == "eager_attention_forward of transformers.models.bert.modeling_bert"
    assert custom_code(model) == ""
