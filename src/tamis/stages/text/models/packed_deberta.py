"""A DeBERTa-v2/v3 encoder over packed sequences: no padding, so no work for tokens that are not there.

Takes the weights of a `transformers` model and gives the same hidden states (within the precision chosen). Sequences
are concatenated; everything but attention is per token, and attention is done sequence by sequence
(disentangled_attention.py). Compared to the padded, length-sorted batches of transformers this saves the padding, the
tables of position scores, and most of the memory: one token takes about 40 kB on the device in a base model, whatever
its neighbours are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis._lazy import F, np, torch
from tamis.errors import UsageError
from tamis.stages.text.models import disentangled_attention as attention
from tamis.stages.text.models.added_norm import added_norm, can_be_fused
from tamis.stages.text.models.cuda import in_turn_with_torch, moved, ready

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """Token ids of several texts in one row, and the span of each text."""

    tokens: Tensor
    spans: list[tuple[int, int]]  # first token and number of tokens of each text
    layout: dict[str, torch.Tensor]  # the same for the kernel, and its tiles

    def to_host(self, device: torch.device | str) -> Packed:
        """Prepare the tensors on the host so that `to` is fast; the device is not needed for this."""
        return Packed(
            ready(self.tokens, device), self.spans, {name: ready(x, device) for name, x in self.layout.items()}
        )

    def to(self, device: torch.device | str) -> Packed:
        return Packed(
            moved(self.tokens, device), self.spans, {name: moved(x, device) for name, x in self.layout.items()}
        )


def pack(texts: Sequence[Any], padding: int = 0, total: int = 0) -> Packed:
    """Pack texts (lists or arrays of at least one token) into one row of tokens, of at least `total` if given."""
    spans, at = [], 0
    for text in texts:
        if not len(text):
            raise UsageError("pack(): a text without tokens; tokenizers give every text at least a first token")
        spans.append((at, len(text)))
        at += -(-len(text) // attention.ALIGN) * attention.ALIGN
    row = np.full(max(at, total) + attention.N_TRAILING, padding, np.int64)
    for (start, n), text in zip(spans, texts, strict=True):
        row[start : start + n] = text
    tokens = torch.from_numpy(row)
    tiles = [(i, first) for i, (_, n) in enumerate(spans) for first in range(0, n, attention.TILE)]
    layout = {
        "starts": [start for start, _ in spans],
        "lengths": [n for _, n in spans],
        "tile_of": [i for i, _ in tiles],
        "tile_at": [first for _, first in tiles],
    }
    return Packed(tokens, spans, {name: torch.tensor(x, dtype=torch.int32) for name, x in layout.items()})


def why_not(config: Any) -> str:
    """Return why a model of this configuration cannot be run packed, as part of a sentence; "" if it can."""
    expected = {"relative_attention": True, "position_biased_input": False, "type_vocab_size": 0, "share_att_key": True}
    if getattr(config, "model_type", "") != "deberta-v2":
        return f"its architecture is {getattr(config, 'model_type', 'unknown')!r}, not 'deberta-v2'"
    for name, value in expected.items():
        if getattr(config, name, None) != value:
            return f"its {name} is {getattr(config, name, None)!r}, not {value!r}"
    if set(config.pos_att_type or ()) != {"c2p", "p2c"}:
        return f"its pos_att_type is {config.pos_att_type!r}, not both of c2p and p2c"
    if (
        getattr(config, "conv_kernel_size", 0)
        or getattr(config, "embedding_size", config.hidden_size) != config.hidden_size
    ):
        return "it has a convolution or an embedding projection"
    if config.position_buckets < 1 or config.hidden_act != "gelu" or "layer_norm" not in (config.norm_rel_ebd or ""):
        return "its position table, activation or normalisation is of another kind"
    return ""


class PackedDeberta:
    """`model`: a transformers DebertaV2Model whose configuration `why_not` accepts.

    `max_tokens`: the longest text to come.
    """

    def __init__(self, model: Any, device: torch.device | str, dtype: torch.dtype, max_tokens: int) -> None:
        config = model.config
        if reason := why_not(config):
            raise UsageError(f"PackedDeberta: this model cannot be run packed: {reason}")
        self.device, self.dtype = torch.device(device), dtype
        self.n_heads, self.eps = config.num_attention_heads, config.layer_norm_eps
        head_size = config.hidden_size // self.n_heads
        furthest = (
            config.max_relative_positions if config.max_relative_positions > 0 else config.max_position_embeddings
        )
        limit = max_tokens + attention.N_TRAILING
        self._where = attention.distances(limit, config.position_buckets, furthest).to(self.device)
        self.not_fused = attention.why_not_fused(head_size, self.n_heads, self._where, device)
        if not self.not_fused and dtype is not torch.bfloat16:
            self.not_fused = "it works in bf16"
        self.fused_norm = can_be_fused(config.hidden_size, device, dtype)
        weights = {name: w.to(self.device, dtype) for name, w in model.state_dict().items()}
        self._words = weights["embeddings.word_embeddings.weight"]
        self._first_norm = pair(weights, "embeddings.LayerNorm")
        positions = _norm(weights["encoder.rel_embeddings.weight"], pair(weights, "encoder.LayerNorm"), self.eps)
        self._layers = [
            _DebertaLayer(weights, f"encoder.layer.{i}.", positions, self.n_heads)
            for i in range(config.num_hidden_layers)
        ]
        if not self.not_fused:
            for layer in self._layers:
                layer.position_queries = attention.paired(layer.position_queries)

    def encode(self, packed: Packed) -> torch.Tensor:
        """Return hidden states of the last layer, one row per packed token; rows between texts mean nothing."""
        with torch.inference_mode(), in_turn_with_torch(self.device):
            packed = packed.to(self.device)
            x = _norm(F.embedding(packed.tokens, self._words), self._first_norm, self.eps)
            # Zeros, not anything: rows between sequences go through the layers too, and are multiplied by weights of 0
            # in the next.
            looked = torch.zeros_like(x)
            for layer in self._layers:
                x = layer(x, looked, packed, self)
            return x


class _DebertaLayer:
    def __init__(self, weights: dict[str, torch.Tensor], prefix: str, positions: torch.Tensor, n_heads: int) -> None:
        own = f"{prefix}attention.self."
        query, key = pair(weights, own + "query_proj"), pair(weights, own + "key_proj")
        self.query_key = tuple(torch.cat(both) for both in zip(query, key, strict=True))
        self.value, value_bias = pair(weights, own + "value_proj")
        # The table of positions goes through the same projections; that does not depend on the texts, so once is
        # enough.
        self.position_keys, self.position_queries = (
            F.linear(positions, *of).view(len(positions), n_heads, -1).transpose(0, 1).contiguous()
            for of in (key, query)
        )
        out, out_bias = pair(weights, prefix + "attention.output.dense")
        # Weights of attention add up to 1, so the bias of the values goes through it as it is: it is one with that of
        # what follows.
        self.out = out, (out_bias.float() + out.float() @ value_bias.float()).to(out.dtype)
        self.out_norm = pair(weights, prefix + "attention.output.LayerNorm")
        self.wide, self.narrow = pair(weights, prefix + "intermediate.dense"), pair(weights, prefix + "output.dense")
        self.norm = pair(weights, prefix + "output.LayerNorm")

    def __call__(self, x: torch.Tensor, looked: torch.Tensor, packed: Packed, of: PackedDeberta) -> torch.Tensor:
        """Run the layer; attention is written to `looked`, which has zeros between sequences."""
        n, width = x.shape
        both = F.linear(x, *self.query_key).view(n, 2, of.n_heads, width // of.n_heads)
        values = self.value @ x.t()  # transposed, as the kernel reads them
        common = (both[:, 0], both[:, 1], values, self.position_keys, self.position_queries, of._where)
        if of.not_fused:
            attention.plain(*common, packed.spans, looked)
        else:
            attention.fused(*common, packed.layout, looked)
        x = added_norm(F.linear(looked, *self.out), x, self.out_norm, of.eps, of.fused_norm)
        return added_norm(F.linear(F.gelu(F.linear(x, *self.wide)), *self.narrow), x, self.norm, of.eps, of.fused_norm)


def pair(weights: dict[str, torch.Tensor], name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight and the bias of a layer; also used by packed_bert.py."""
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def _norm(x: torch.Tensor, norm: tuple[torch.Tensor, torch.Tensor], eps: float) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), *norm, eps)
