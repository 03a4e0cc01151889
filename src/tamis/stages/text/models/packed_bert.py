"""A BERT encoder (BERT, MiniLM) over packed sequences: no padding, so no work for tokens that are not there.

Takes the weights of a `transformers` model and gives the same hidden states (within the precision chosen). Texts are
concatenated, without a gap; everything but attention is per token. Attention over texts of different lengths is
one call of torch's flash attention on a GPU; elsewhere texts of equal length, which are adjacent since batches
are sorted, go through plain attention together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from tamis._lazy import F, np, torch
from tamis.errors import UsageError
from tamis.stages.text.models.added_norm import added_norm, can_be_fused
from tamis.stages.text.models.cuda import in_turn_with_torch
from tamis.stages.text.models.packed_deberta import Packed, pair

_LEAST_CAPABILITY = (8, 0)  # flash attention
_HEAD_SIZES = 8  # ... takes heads whose size is a multiple of this


def why_not(config: Any) -> str:
    """Return why a model of this configuration cannot be run packed, as part of a sentence; "" if it can."""
    kind = getattr(config, "model_type", "unknown")
    if kind != "bert":
        return f"its architecture is {kind!r}, not 'bert'"
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if positions != "absolute":
        return f"its positions are {positions!r}, not 'absolute'"
    if config.hidden_act != "gelu":
        return f"its activation is {config.hidden_act!r}, not 'gelu'"
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return "it is a decoder"
    return ""


def why_not_fused(head_size: int, device: torch.device | str, dtype: torch.dtype) -> str:
    """Return why torch's attention over variable-length sequences cannot be used here; "" if it can."""
    if torch.device(device).type != "cuda":
        return "it needs a CUDA device"
    if dtype not in (torch.bfloat16, torch.float16):
        return "it works in half precision"
    if head_size % _HEAD_SIZES:
        return f"it needs heads of a multiple of {_HEAD_SIZES}, and the model's are of size {head_size}"
    if torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        return f"it needs compute capability {_LEAST_CAPABILITY[0]}.{_LEAST_CAPABILITY[1]} or more"
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: F401
    except ImportError:
        return "it needs torch 2.10 or newer"
    return ""


def pack(texts: Sequence[Any], total: int = 0) -> Packed:
    """Pack texts (lists or arrays of at least one token) into one row of tokens, of at least `total` if given."""
    lengths = np.array([len(text) for text in texts], np.int64)
    if len(lengths) and not lengths.min():
        raise UsageError("pack(): a text without tokens; tokenizers give every text at least a first token")
    ends = np.cumsum(lengths)
    n = int(ends[-1]) if len(ends) else 0
    row, places = np.zeros(max(n, total), np.int32), np.zeros(max(n, total), np.int32)
    row[:n] = np.concatenate(texts) if n else 0
    starts = ends - lengths
    places[:n] = np.arange(n) - np.repeat(starts, lengths)
    layout = {
        "starts": torch.from_numpy(starts),
        "places": torch.from_numpy(places),
        "ends": torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32)),
    }
    spans = list(zip(starts.tolist(), lengths.tolist(), strict=True))
    return Packed(torch.from_numpy(row), spans, layout)


class PackedBert:
    """`model`: a transformers BertModel whose configuration `why_not` accepts.

    `max_tokens`: the longest text to come.
    """

    def __init__(self, model: Any, device: torch.device | str, dtype: torch.dtype, max_tokens: int) -> None:
        config = model.config
        if reason := why_not(config):
            raise UsageError(f"PackedBert: this model cannot be run packed: {reason}")
        check_positions(config, max_tokens)
        self.device, self.dtype = torch.device(device), dtype
        self.n_heads, self.eps = config.num_attention_heads, config.layer_norm_eps
        self.fused_norm = can_be_fused(config.hidden_size, device, dtype)
        self.not_fused = why_not_fused(config.hidden_size // self.n_heads, device, dtype)
        weights = {name: w.to(self.device, dtype) for name, w in model.state_dict().items() if w.is_floating_point()}
        self._words = weights["embeddings.word_embeddings.weight"]
        # Every token is of the first of two texts, so that its vector is the same for all.
        self._places = (
            weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self._first_norm = pair(weights, "embeddings.LayerNorm")
        self._layers = [_BertLayer(weights, f"encoder.layer.{i}.") for i in range(config.num_hidden_layers)]

    def encode(self, packed: Packed) -> torch.Tensor:
        """Return hidden states of the last layer, one row per packed token; rows after the last text are padding."""
        with torch.inference_mode(), in_turn_with_torch(self.device):
            longest = max((n for _, n in packed.spans), default=0)
            packed = packed.to(self.device)
            x = F.embedding(packed.tokens, self._words) + F.embedding(packed.layout["places"], self._places)
            x = F.layer_norm(x, (x.shape[-1],), *self._first_norm, self.eps)
            for layer in self._layers:
                x = layer(x, packed, longest, self)
            return x

    def attend(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, packed: Packed, longest: int
    ) -> Any:
        """Compute the attention of all texts; [tokens, heads, size] in and out, without rows after the last text."""
        if self.not_fused:
            return plain(queries, keys, values, packed.spans)
        from torch.nn.attention.varlen import varlen_attn

        ends = packed.layout["ends"]
        return varlen_attn(queries, keys, values, ends, ends, longest, longest)


def plain(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spans: list[tuple[int, int]]
) -> torch.Tensor:
    """Compute attention with torch alone, adjacent texts of equal length together, in the inputs' precision."""
    out = torch.empty_like(queries)
    for n, same in groupby(spans, key=lambda span: span[1]):
        several = list(same)
        here = slice(several[0][0], several[-1][0] + n)
        q, k, v = (x[here].view(len(several), n, *x.shape[1:]).transpose(1, 2) for x in (queries, keys, values))
        out[here] = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, *queries.shape[1:])
    return out


class _BertLayer:
    def __init__(self, weights: dict[str, torch.Tensor], prefix: str) -> None:
        own = [pair(weights, f"{prefix}attention.self.{name}") for name in ("query", "key", "value")]
        self.three = tuple(torch.cat(parts) for parts in zip(*own, strict=True))
        self.out, self.out_norm = (pair(weights, f"{prefix}attention.output.{n}") for n in ("dense", "LayerNorm"))
        self.wide, self.narrow = pair(weights, prefix + "intermediate.dense"), pair(weights, prefix + "output.dense")
        self.norm = pair(weights, prefix + "output.LayerNorm")

    def __call__(self, x: torch.Tensor, packed: Packed, longest: int, of: PackedBert) -> torch.Tensor:
        n, width = x.shape
        n_own = packed.spans[-1][0] + packed.spans[-1][1] if packed.spans else 0
        q, k, v = F.linear(x, *self.three).view(n, 3, of.n_heads, width // of.n_heads).unbind(1)
        looked = of.attend(q[:n_own], k[:n_own], v[:n_own], packed, longest).reshape(n_own, width)
        if n_own < n:  # rows after the texts go through the layers, too: the same shapes for every batch
            looked = F.pad(looked, (0, 0, 0, n - n_own))
        x = added_norm(F.linear(looked, *self.out), x, self.out_norm, of.eps, of.fused_norm)
        return added_norm(F.linear(F.gelu(F.linear(x, *self.wide)), *self.narrow), x, self.norm, of.eps, of.fused_norm)


def check_positions(config: Any, max_tokens: int) -> None:
    """Refuse texts longer than the model's table of positions, before any document is touched.

    The model cannot see tokens beyond its table.
    """
    if max_tokens > config.max_position_embeddings:
        raise UsageError(
            f"max_seq_length={max_tokens}: this model ({config.model_type}) has {config.max_position_embeddings} "
            "positions and can see no more "
            f"tokens of a text; give at most {config.max_position_embeddings} (texts are cut to it), or leave it out"
        )
