"""DeBERTa over packed sequences: the same hidden states as transformers, whatever lies beside a text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tamis.errors import UsageError

torch = pytest.importorskip("torch", reason="the extra `models` is not installed")
transformers = pytest.importorskip("transformers", reason="the extra `models` is not installed")

from tamis.stages.text.models import disentangled_attention as attention  # noqa: E402
from tamis.stages.text.models.packed_deberta import PackedDeberta, pack, why_not  # noqa: E402

LENGTHS = (5, 60, 130, 1, 33)


def config(**changed: Any) -> Any:
    return transformers.DebertaV2Config(
        **{
            "vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128,
            "relative_attention": True, "position_buckets": 16, "max_relative_positions": -1, "max_position_embeddings": 64,
            "pos_att_type": ["p2c", "c2p"], "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
            "type_vocab_size": 0, "layer_norm_eps": 1e-7, "hidden_act": "gelu",
        } | changed
    )  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    return transformers.DebertaV2Model(config()).eval()


def texts() -> list[list[int]]:
    torch.manual_seed(1)
    return [torch.randint(0, 500, (n,)).tolist() for n in LENGTHS]


def test_hidden_states_are_those_of_transformers(model: Any) -> None:
    packed = pack(texts())
    ours = PackedDeberta(model, "cpu", torch.float32, 130)
    found = ours.encode(packed)
    for (start, n), text in zip(packed.spans, texts(), strict=True):
        with torch.no_grad():
            expected = model(torch.tensor([text]), attention_mask=torch.ones(1, n)).last_hidden_state[0]
        assert torch.allclose(found[start : start + n], expected, atol=1e-5)
    assert torch.equal(ours.first_tokens(packed), found[[start for start, _ in packed.spans]])


def test_a_text_does_not_depend_on_its_neighbours(model: Any) -> None:
    ours = PackedDeberta(model, "cpu", torch.float32, 130)
    together = ours.first_tokens(pack(texts()))
    for row, text in zip(together, texts(), strict=True):
        assert torch.allclose(ours.first_tokens(pack([text]))[0], row, atol=1e-6)


def test_rows_of_distances_are_those_of_transformers() -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    where = attention.distances(700, 256, 512)
    expected = (make_log_bucket_position(torch.arange(-700, 701), 256, 512) + 256).clamp(0, 511)
    assert where.rows.tolist() == expected.to(torch.int64).tolist()
    # From these distances on, the windows of the kernel are wide enough.
    for nearest, windows in zip((where.far, where.flat), attention._WINDOWS, strict=True):
        rows = where.rows.tolist()
        for n, most in windows:
            for low in range(nearest, 700 - n):
                assert rows[low + n - 1 + 700] - rows[low + 700] + 1 <= most
                assert rows[-low + 700] - rows[-low - n + 1 + 700] + 1 <= most


def test_sequences_start_where_the_kernel_wants_them_and_tiles_cover_them() -> None:
    packed = pack(texts(), padding=7)
    assert all(start % attention.ALIGN == 0 for start, _ in packed.spans)
    assert len(packed.tokens) >= packed.spans[-1][0] + packed.spans[-1][1] + 64
    covered = [[0] * n for n in LENGTHS]
    for which, first in zip(packed.layout["tile_of"].tolist(), packed.layout["tile_at"].tolist(), strict=True):
        for i in range(first, min(first + attention.TILE, LENGTHS[which])):
            covered[which][i] += 1
    assert all(set(row) == {1} for row in covered)


def test_texts_without_tokens_are_refused() -> None:
    with pytest.raises(UsageError, match="a text without tokens"):
        pack([[1, 2], []])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"relative_attention": False}, "relative_attention"),
        ({"pos_att_type": ["c2p"]}, "pos_att_type"),
        ({"type_vocab_size": 2}, "type_vocab_size"),
        ({"conv_kernel_size": 3}, "convolution"),
    ],
)
def test_models_of_another_kind_are_refused_with_the_reason(changed: dict[str, Any], told: str) -> None:
    assert told in why_not(config(**changed))
    assert why_not(config()) == ""
    assert "'bert'" in why_not(SimpleNamespace(model_type="bert"))


def test_without_a_cuda_device_the_plain_way_is_taken_and_the_reason_told(model: Any) -> None:
    assert PackedDeberta(model, "cpu", torch.float32, 10).not_fused == "it needs a CUDA device"
