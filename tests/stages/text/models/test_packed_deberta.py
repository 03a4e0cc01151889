"""DeBERTa over packed sequences: the same hidden states as transformers, whatever lies beside a text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tamis.errors import UsageError
from tests.support.optional import optional

torch = optional("torch", reason="the extra `models` is not installed")
transformers = optional("transformers", reason="the extra `models` is not installed")

from tamis.stages.text.models import disentangled_attention as attention  # noqa: E402
from tamis.stages.text.models.packed_deberta import PackedDeberta, pack, why_not  # noqa: E402

LENGTHS = (5, 60, 130, 1, 33)


def config(**changed: Any) -> Any:
    return transformers.DebertaV2Config(
        **{
            "vocab_size": 500,
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "relative_attention": True,
            "position_buckets": 16,
            "max_relative_positions": -1,
            "max_position_embeddings": 64,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
            "type_vocab_size": 0,
            "layer_norm_eps": 1e-7,
            "hidden_act": "gelu",
        }
        | changed
    )


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    made = transformers.DebertaV2Model(config()).eval()
    for (
        name,
        weight,
    ) in made.named_parameters():  # a new model's are all 0, and a bias that is left out would not be seen
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.3)
    return made


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


def test_a_text_does_not_depend_on_its_neighbours(model: Any) -> None:
    ours = PackedDeberta(model, "cpu", torch.float32, 130)
    packed = pack(texts())
    together = ours.encode(packed)
    for (start, n), text in zip(packed.spans, texts(), strict=True):
        assert torch.allclose(ours.encode(pack([text]))[:n], together[start : start + n], atol=1e-6)


def test_rows_of_distances_are_those_of_transformers() -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    where = attention.distances(700, 256, 512)
    expected = (make_log_bucket_position(torch.arange(-700, 701), 256, 512) + 256).clamp(0, 511)
    assert where.rows.tolist() == expected.to(torch.int64).tolist()
    assert (where.steep, where.n_rows) == (False, 512)
    for distance in range(-where.linear, where.linear + 1):
        assert where.rows[distance + 700] == 256 + distance
    # Beyond its reach nothing changes: the kernel reads no further.
    assert where.reach < 700
    assert len(set(where.rows[700 + where.reach - attention.N_TRAILING :].tolist())) == 1
    assert len(set(where.rows[: 700 - where.reach + attention.N_TRAILING].tolist())) == 1


def test_a_table_that_is_too_steep_for_the_windows_of_the_kernel_is_known() -> None:
    assert attention.distances(700, 512, 300).steep  # more rows than distances beyond the middle
    assert not attention.distances(3000, 64, 4096).steep


def test_rows_in_pairs_lie_as_threads_take_them() -> None:
    table = torch.randn(3, 32, 64).to(torch.bfloat16)
    words = table.view(torch.int32)  # [head, row, word]
    quads = attention.paired(table).view(torch.int32).view(3, 16, 4, 4, 4)  # [head, pair, step x, thread c, word]
    for x in range(4):
        for c in range(4):
            first = 16 * (x >> 1) + 4 * c + 2 * (x & 1)  # of the words that thread c multiplies in step x
            for z in range(4):
                assert torch.equal(quads[:, :, x, c, z], words[:, z & 1 :: 2, first + (z >> 1)])


def test_what_the_kernel_gets_follows_from_the_shared_memory_of_the_device() -> None:
    large, middle = attention.variant(512, 640, 12, 232_448, 132), attention.variant(512, 640, 12, 166_912, 108)
    assert large is not None
    assert (large.resident, large.n_blocks, large.shared_bytes <= 232_448) == (True, 11, True)
    assert middle is not None
    assert (middle.resident, middle.n_blocks) == (False, 0)
    assert attention.variant(512, 640, 12, 49_152, 40) is None


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
    ("changed", "reason"),
    [
        ({"relative_attention": False}, "relative_attention"),
        ({"pos_att_type": ["c2p"]}, "pos_att_type"),
        ({"type_vocab_size": 2}, "type_vocab_size"),
        ({"conv_kernel_size": 3}, "convolution"),
    ],
)
def test_models_of_another_kind_are_refused_with_the_reason(changed: dict[str, Any], reason: str) -> None:
    assert reason in why_not(config(**changed))
    assert why_not(config()) == ""
    assert "'bert'" in why_not(SimpleNamespace(model_type="bert"))


def test_without_a_cuda_device_the_plain_way_is_taken_and_the_reason_reported(model: Any) -> None:
    assert PackedDeberta(model, "cpu", torch.float32, 10).not_fused == "it needs a CUDA device"


def test_the_norm_of_a_sum_is_torchs_where_the_kernel_cannot_be_used() -> None:
    from tamis.stages.text.models.added_norm import added_norm, can_be_fused

    assert not can_be_fused(768, "cpu", torch.bfloat16)
    assert not can_be_fused(768, "cuda", torch.float32)
    x, y, weight, bias = torch.randn(5, 24), torch.randn(5, 24), torch.randn(24), torch.randn(24)
    found = added_norm(x, y, (weight, bias), 1e-5, fused=False)
    assert torch.allclose(found, torch.nn.functional.layer_norm(x + y, (24,), weight, bias, 1e-5))
