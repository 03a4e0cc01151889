"""Llama over packed texts: no padding, and the common beginning of all texts is computed once.

Takes a `transformers` model as it is (its weights are not copied) and gives the same hidden states, within the
precision of the weights. Texts are concatenated; everything but attention is per token. A token looks at the
tokens before it: those of the common beginning (`head`), of its own text and of the answer so far, whose keys and
values are stored in one row per layer, from which those of each text are gathered. Called by language.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from tamis._lazy import F, np, torch
from tamis.errors import UsageError
from tamis.stages.text.models.cuda import moved
from tamis.stages.text.models.packed_bert import why_not_fused

if TYPE_CHECKING:
    from torch import Tensor

_ROTATIONS = ("default", "linear", "llama3")  # those that are the same however long a text is
_ROWS = 64  # answers grow in multiples: the same products for every text, whatever its neighbours
_STEPS = 8  # tokens of an answer that there is room for, before more is made


def why_not(config: Any, rotation: str) -> str:
    """Return why a model of this configuration cannot be run packed, as part of a sentence; "" if it can.

    `rotation`: the kind of its positions.
    """
    kind = getattr(config, "model_type", "unknown")
    if kind != "llama":
        return f"its architecture is {kind!r}, not 'llama'"
    if rotation not in _ROTATIONS:
        return f"its positions are {rotation!r}, not one of {', '.join(_ROTATIONS)}"
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act!r}, not 'silu'"
    return ""


class PackedLlama:
    """`model`: a LlamaModel of transformers, on its device, whose configuration `why_not` accepts.

    `head`: token ids that texts begin with.
    """

    def __init__(self, model: Any, head: Sequence[int] = ()) -> None:
        config = model.config
        if reason := why_not(config, rotation_of(model)):
            raise UsageError(f"PackedLlama: this model cannot be run packed: {reason}")
        weight = model.embed_tokens.weight
        self.device, self.dtype, self.model = weight.device, weight.dtype, model
        self.head_size = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        self.n_key_heads = int(config.num_key_value_heads)
        self.n_repeats = config.num_attention_heads // config.num_key_value_heads
        self.not_fused = why_not_fused(self.head_size, self.device, self.dtype)
        self.head: np.ndarray[Any, Any] = np.empty(0, np.int32)
        self.head_seen: list[KeyValueCache] = []
        if len(head):
            own = np.asarray(head, np.int32)
            self.head_seen, self.head = self.read([own], answers=True).seen, own

    def n_own(self, text: np.ndarray[Any, Any]) -> int:
        """Return how many tokens of a text are its own: all, less the head if the text begins with it."""
        n = len(self.head)
        return len(text) - n if n and len(text) > n and np.array_equal(text[:n], self.head) else len(text)

    def read(self, texts: Sequence[np.ndarray[Any, Any]], total: int = 0, answers: bool = False) -> PackedState:
        """Read texts (at least one token each) as one row of at least `total` tokens.

        `answers`: more tokens will follow them.
        """
        with torch.inference_mode():
            return PackedState(self, texts, total, answers)


@dataclass
class KeyValueCache:
    """Keys and values of earlier tokens in one layer: [tokens, heads, size]."""

    keys: Tensor
    values: Tensor

    def put(self, at: slice, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys[at], self.values[at] = keys, values

    def grow(self, n: int) -> None:
        """Add room for `n` tokens."""
        self.keys, self.values = (F.pad(t, (0, 0, 0, 0, 0, n)) for t in (self.keys, self.values))


class PackedState:
    """Packed texts after the forward pass, with the caches that more tokens need.

    `last`: the last layer's state of the last token of each text, [rows, width]; rows after the texts, up to a multiple
    of 64, are padding.
    """

    def __init__(self, of: PackedLlama, texts: Sequence[np.ndarray[Any, Any]], total: int, answers: bool) -> None:
        self._of, n_head = of, len(of.head)
        n_all = np.array([len(text) for text in texts], np.int64)
        n_own = np.array([of.n_own(text) for text in texts], np.int64)
        if not n_all.all():
            raise UsageError("PackedLlama: a text without tokens; tokenizers give every text at least a first token")
        ends, n = np.cumsum(n_own), int(n_own.sum())
        tokens, places = np.zeros(max(n, total), np.int64), np.zeros(max(n, total), np.int64)
        tokens[:n] = np.concatenate([text[len(text) - k :] for text, k in zip(texts, n_own.tolist(), strict=True)])
        places[:n] = np.arange(n) - np.repeat(ends - n_all, n_own)
        # Indices of the keys and values of each text: those of the head, its own, and after all of them those of
        # its answer.
        self._at = [
            np.concatenate([np.arange(whole - own), np.arange(n_head + end - own, n_head + end)])
            for whole, own, end in zip(n_all.tolist(), n_own.tolist(), ends.tolist(), strict=True)
        ]
        self._n_seen, self._places = n_head, n_all
        self._n_rows = -(-len(texts) // _ROWS) * _ROWS
        # Where nothing follows, layers share one cache.
        n_layers = len(of.model.layers)
        self.seen = (
            [self._room(n_head + n) for _ in range(n_layers)] if answers else [self._room(n_head + n)] * n_layers
        )
        state = self._forward(moved(tokens, of.device), places, n_own, gathers=bool((n_own < n_all).any()))
        self.last = self._padded(state[moved(ends - 1, of.device)])

    def follow(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the state of one more token of each text, [rows, width]; `tokens`: one for each row."""
        with torch.inference_mode():
            n = len(self._at)
            if self._n_seen + n > len(self.seen[0].keys):
                for seen in self.seen:
                    seen.grow(_STEPS * n)
            self._at = [np.append(at, self._n_seen + k) for k, at in enumerate(self._at)]
            places = np.pad(self._places, (0, self._n_rows - n))
            state = self._forward(tokens, places, np.ones(n, np.int64), gathers=True)
            self._places = self._places + 1
            return self._padded(state[:n])

    def _room(self, n: int) -> KeyValueCache:
        shape = (n, self._of.n_key_heads, self._of.head_size)
        return KeyValueCache(*(torch.empty(shape, dtype=self._of.dtype, device=self._of.device) for _ in range(2)))

    def _padded(self, rows: torch.Tensor) -> torch.Tensor:
        return F.pad(self._of.model.norm(rows), (0, 0, 0, self._n_rows - len(rows)))

    def _forward(
        self, tokens: torch.Tensor, places: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], gathers: bool
    ) -> torch.Tensor:
        """Run all layers over a row of tokens, of which each text has the next `lengths`.

        `gathers`: the tokens attend to more than themselves.
        """
        of, n = self._of, int(lengths.sum())
        x = F.embedding(tokens, of.model.embed_tokens.weight)
        cos, sin = of.model.rotary_emb(x[None], moved(places[None], of.device))
        n_new, n_seen = lengths.tolist(), [len(at) for at in self._at]
        new = _New(
            slice(self._n_seen, self._n_seen + n),
            n_new,
            n_seen,
            _ends(of.device, n_new),
            _ends(of.device, n_seen),
            moved(np.concatenate(self._at), of.device) if gathers else None,
            cos[0, :, None],
            sin[0, :, None],
        )
        is_first = self._n_seen == len(of.head)
        for k, (layer, seen) in enumerate(zip(of.model.layers, self.seen, strict=True)):
            if is_first and self._n_seen:
                seen.put(slice(0, self._n_seen), of.head_seen[k].keys, of.head_seen[k].values)
            x = _layer(layer, x, seen, new, of)
        self._n_seen += n
        return x


@dataclass(frozen=True)
class _New:
    """Tokens that are read now: so many of each text, whose keys go to the place `at`.

    `index`: positions that each text attends to (None: only these).
    """

    at: slice
    lengths: list[int]
    n_seen: list[int]
    ends: Tensor
    ends_seen: Tensor
    index: Tensor | None
    cos: Tensor
    sin: Tensor


def _layer(layer: Any, x: torch.Tensor, seen: KeyValueCache, new: _New, of: PackedLlama) -> torch.Tensor:
    """Run one layer; `x` is changed, and the keys and values of its tokens are added to `seen`."""
    n, own = new.at.stop - new.at.start, layer.self_attn
    normed = _norm(x, layer.input_layernorm)
    queries, keys, values = (p(normed).view(len(x), -1, of.head_size) for p in (own.q_proj, own.k_proj, own.v_proj))
    queries, keys, values = _rotated(queries, new)[:n], _rotated(keys, new)[:n], values[:n]
    seen.put(new.at, keys, values)
    if new.index is not None:
        keys, values = seen.keys[new.index], seen.values[new.index]
    if of.n_repeats > 1:
        keys, values = keys.repeat_interleave(of.n_repeats, 1), values.repeat_interleave(of.n_repeats, 1)
    looked = (_plain if of.not_fused else _fused)(queries, keys, values, new).reshape(n, -1)
    if n < len(x):  # rows after the texts go through the layers, too: the same shapes for every batch
        looked = F.pad(looked, (0, 0, 0, len(x) - n))
    x += own.o_proj(looked)
    normed = _norm(x, layer.post_attention_layernorm)
    x += layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(normed), inplace=True).mul_(layer.mlp.up_proj(normed)))
    return x


def _norm(x: torch.Tensor, norm: Any) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), norm.weight, norm.variance_epsilon)


def _rotated(x: torch.Tensor, new: _New) -> torch.Tensor:
    """Rotate queries or keys [tokens, heads, size] by their positions, the two halves of the values as pairs."""
    half = x.shape[-1] // 2
    cos, sin = new.cos[..., :half], new.sin[..., :half]
    out = torch.empty_like(x)
    torch.mul(x[..., :half], cos, out=out[..., :half]).addcmul_(x[..., half:], sin, value=-1)
    torch.mul(x[..., half:], cos, out=out[..., half:]).addcmul_(x[..., :half], sin)
    return out


def _fused(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, new: _New) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    longest = max(new.lengths), max(new.n_seen)
    return varlen_attn(queries, keys, values, new.ends, new.ends_seen, *longest, **_backwards())


@lru_cache(maxsize=1)
def _backwards() -> dict[str, Any]:
    """Return the arguments that make torch's attention causal; they differ between versions of torch."""
    from torch.nn.attention.varlen import varlen_attn

    takes = inspect.signature(varlen_attn).parameters
    return {"window_size": (-1, 0)} if "window_size" in takes else {"is_causal": True}


def _plain(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, new: _New) -> torch.Tensor:
    """Compute the same as `_fused` with torch alone, text by text."""
    out = torch.empty_like(queries)
    spans = zip(pairwise(accumulate(new.lengths, initial=0)), pairwise(accumulate(new.n_seen, initial=0)), strict=True)
    for (a, b), (c, d) in spans:
        q, k, v = (t.transpose(0, 1)[None] for t in (queries[a:b], keys[c:d], values[c:d]))
        mask = torch.ones(b - a, d - c, dtype=torch.bool, device=q.device).tril(d - c - (b - a))
        out[a:b] = F.scaled_dot_product_attention(q, k, v, mask)[0].transpose(0, 1)
    return out


def rotation_of(model: Any) -> str:
    """Return the kind of rotary positions of a transformers model; "none" if it has none of this kind."""
    return str(getattr(getattr(model, "rotary_emb", None), "rope_type", "none"))


def _ends(device: torch.device, lengths: list[int]) -> torch.Tensor:
    return moved(torch.tensor([0, *accumulate(lengths)], dtype=torch.int32), device)
