"""A packed Llama gives what transformers gives: alone, batched, after a common beginning, and while answering."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.optional import optional

torch = optional("torch", reason="the extra `models` is not installed")
transformers = optional("transformers", reason="the extra `models` is not installed")

from tamis.errors import UsageError  # noqa: E402
from tamis.stages.text.models.packed_llama import PackedLlama, rotation_of, why_not  # noqa: E402

HEAD = list(range(40, 57))


def model(n_key_heads: int = 4, **more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=n_key_heads,
        max_position_embeddings=256,
        **more,
    )
    return transformers.LlamaModel(config).eval()


def some_texts() -> list[Any]:
    """With the head and without, with a part of it, the head itself, one token."""
    rng = np.random.default_rng(1)
    own = [rng.integers(0, 99, n).tolist() for n in (1, 5, 30, 12, 64)]
    lists = [HEAD + own[0], own[1], HEAD + own[2], HEAD[:9] + own[3], HEAD, [7], HEAD + own[4]]
    return [np.array(ids, np.int32) for ids in lists]


def wanted(of: Any, text: Any, more: list[int] | None = None) -> Any:
    """Return what transformers computes for the last token of a text alone."""
    ids = torch.tensor([[*text.tolist(), *(more or [])]])
    with torch.inference_mode():
        return of(input_ids=ids, use_cache=False).last_hidden_state[0, -1]


@pytest.mark.parametrize("n_key_heads", [4, 2])
@pytest.mark.parametrize("head", [[], HEAD])
@pytest.mark.parametrize("answers", [False, True])
def test_the_last_states_are_those_of_transformers(n_key_heads: int, head: list[int], answers: bool) -> None:
    own = model(n_key_heads)
    packed, texts = PackedLlama(own, head), some_texts()
    made = packed.read(texts, total=300, answers=answers).last
    assert len(made) == 64
    for row, text in zip(made, texts, strict=False):
        assert torch.allclose(row, wanted(own, text), atol=1e-5)
    alone = packed.read(texts[2:3], answers=answers).last[0]
    assert torch.allclose(alone, made[2], atol=1e-5)


def test_answers_continue_as_in_transformers_for_more_tokens_than_there_was_room_for() -> None:
    own = model()
    packed, texts = PackedLlama(own, HEAD), some_texts()
    reading = packed.read(texts, answers=True)
    given = np.random.default_rng(2).integers(0, 99, (21, len(texts)))
    for k in range(len(given)):
        made = reading.follow(torch.from_numpy(np.pad(given[k], (0, 64 - len(texts)))))
        if k in (0, 7, 8, 20):
            for i, text in enumerate(texts):
                assert torch.allclose(made[i], wanted(own, text, given[: k + 1, i].tolist()), atol=1e-5)


def test_only_what_follows_the_head_is_read_again() -> None:
    packed = PackedLlama(model(), HEAD)
    assert [packed.n_own(text) for text in some_texts()] == [1, 5, 30, 21, 17, 1, 64]
    assert [len(s.keys) for s in packed.head_seen] == [17] * 3
    seen = packed.read(some_texts()).seen
    assert len(seen[0].keys) == 17 + 139
    assert all(s is seen[0] for s in seen)  # no layer's is kept where no answer follows


def test_models_of_other_kinds_say_why_they_are_not_packed() -> None:
    own = model()
    assert why_not(own.config, rotation_of(own)) == ""
    assert rotation_of(torch.nn.Linear(2, 2)) == "none"
    other = model(hidden_act="gelu")
    assert "activation is 'gelu'" in why_not(other.config, rotation_of(other))
    assert "architecture is 'mistral'" in why_not(transformers.MistralConfig(), "default")
    assert "positions are 'dynamic'" in why_not(own.config, "dynamic")
    with pytest.raises(UsageError, match="activation is 'gelu'"):
        PackedLlama(other)
    with pytest.raises(UsageError, match="without tokens"):
        PackedLlama(own).read([np.array([], np.int32)])
