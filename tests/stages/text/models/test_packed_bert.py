"""BERT over packed sequences: the same hidden states as transformers, whatever lies beside a text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tamis.errors import UsageError
from tests.support.optional import optional

torch = optional("torch", reason="the extra `models` is not installed")
transformers = optional("transformers", reason="the extra `models` is not installed")

from tamis.stages.text.models.packed_bert import PackedBert, pack, plain, why_not, why_not_fused  # noqa: E402

LENGTHS = (60, 33, 33, 33, 5, 5, 1)


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    return transformers.BertModel(
        transformers.BertConfig(**sizes, intermediate_size=96, max_position_embeddings=64)
    ).eval()


def texts() -> list[list[int]]:
    torch.manual_seed(1)
    return [torch.randint(0, 300, (n,)).tolist() for n in LENGTHS]


@pytest.mark.parametrize("total", [0, 256])
def test_hidden_states_are_those_of_transformers(model: Any, total: int) -> None:
    packed = pack(texts(), total)
    found = PackedBert(model, "cpu", torch.float32, 64).encode(packed)
    assert len(found) == max(sum(LENGTHS), total)
    for (start, n), text in zip(packed.spans, texts(), strict=True):
        with torch.no_grad():
            expected = model(torch.tensor([text]), attention_mask=torch.ones(1, n)).last_hidden_state[0]
        assert torch.allclose(found[start : start + n], expected, atol=1e-5)


def test_a_text_does_not_depend_on_its_neighbours(model: Any) -> None:
    ours = PackedBert(model, "cpu", torch.float32, 64)
    packed = pack(texts())
    together = ours.encode(packed)
    for (start, _), text in zip(packed.spans, texts(), strict=True):
        assert torch.allclose(ours.encode(pack([text]))[0], together[start], atol=1e-6)


def test_texts_of_equal_length_go_together_and_give_the_same() -> None:
    q, k, v = (torch.randn(sum(LENGTHS), 4, 12) for _ in range(3))
    spans = pack(texts()).spans
    alone = torch.cat([plain(q[a : a + n], k[a : a + n], v[a : a + n], [(0, n)]) for a, n in spans])
    assert torch.allclose(plain(q, k, v, spans), alone, atol=1e-6)


def test_more_tokens_than_positions_are_refused_with_the_number(model: Any) -> None:
    with pytest.raises(UsageError, match=r"max_seq_length=65: this model \(bert\) has 64 positions"):
        PackedBert(model, "cpu", torch.float32, 65)
    with pytest.raises(UsageError, match="a text without tokens"):
        pack([[1], []])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model_type": "roberta"}, "architecture is 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "positions are 'relative_key'"),
        ({"hidden_act": "relu"}, "activation is 'relu'"),
        ({"is_decoder": True}, "it is a decoder"),
    ],
)
def test_other_models_are_run_as_before(changed: dict[str, Any], reason: str) -> None:
    plain_bert = {
        "model_type": "bert",
        "position_embedding_type": "absolute",
        "hidden_act": "gelu",
        "is_decoder": False,
    }
    assert not why_not(SimpleNamespace(**plain_bert))
    assert reason in why_not(SimpleNamespace(**plain_bert | changed))


def test_where_flash_attention_is_not_there_it_is_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not_fused(64, "cpu", torch.bfloat16) == "it needs a CUDA device"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert why_not_fused(64, "cuda", torch.float32) == "it works in half precision"
    assert "multiple of 8" in why_not_fused(12, "cuda", torch.bfloat16)
    assert "compute capability 8.0" in why_not_fused(64, "cuda", torch.bfloat16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert why_not_fused(64, "cuda", torch.bfloat16) == ""
