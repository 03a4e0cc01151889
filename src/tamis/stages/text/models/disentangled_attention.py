"""Disentangled attention of DeBERTa-v2/v3 over packed sequences: a fused CUDA kernel where there is one, plain torch elsewhere.

score(i, j) = (q_i.k_j + q_i.Pk[r(i-j)] + k_j.Pq[r(i-j)]) / sqrt(3 * head size), r = row of the table of relative positions.

The kernel is in disentangled_attention.cu and is compiled when it is first used (cupy, by NVRTC, about 3 s once per machine). On an H200
at 1,024 tokens it is 1.6 times as fast as the same in Triton, whose gathers within a tile took two thirds of the time, and the whole
model is 3.4 to 3.7 times as fast as transformers' own (docs/benchmarks-gpu.md). Called by packed_deberta.py only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

HEAD_SIZE = 64
TILE = 32  # queries of one warp
ALIGN = 8  # sequences start at multiples of so many tokens
BEHIND = 128  # tokens that must be readable behind the last sequence
_WARPS = 4
_WINDOWS = (
    ((95, 32), (47, 16)),
    ((95, 8), (47, 8)),
)  # of "far" and "flat" tiles: so many distances, at most so many rows
_LOG2_E = 1.4426950408889634
_LEAST_CAPABILITY = (8, 0)  # mma with bf16


@dataclass(frozen=True)
class Distances:
    """The row of the table of relative positions for every distance from -limit to limit."""

    rows: torch.Tensor  # int16, at index distance + limit
    limit: int
    far: int  # tiles at least so far from the diagonal need narrow windows
    flat: int  # ... and those the narrowest

    def to(self, device: str | torch.device) -> Distances:
        return Distances(self.rows.to(device), self.limit, self.far, self.flat)


def distances(limit: int, buckets: int, max_distance: int) -> Distances:
    """Rows as transformers computes them: `buckets` each side, the nearer half one by one, the rest logarithmically."""
    import torch

    middle = buckets // 2
    d = torch.arange(-limit, limit + 1)
    size = torch.where(d.abs() < middle, torch.tensor(middle - 1), d.abs())
    stretched = torch.ceil(torch.log(size / middle) / math.log((max_distance - 1) / middle) * (middle - 1)) + middle
    bucket = torch.where(size <= middle, d, (stretched * d.sign()).to(d.dtype))
    rows = (bucket + buckets).clamp(0, 2 * buckets - 1).to(torch.int16)
    far, flat = (nearest_narrow(rows.tolist(), limit, windows) for windows in _WINDOWS)
    return Distances(rows, limit, far, flat)


def nearest_narrow(rows: list[int], limit: int, windows: tuple[tuple[int, int], ...]) -> int:
    """The distance from which on every window of n distances spans at most m rows, for all (n, m).

    >>> nearest_narrow([0, 0, 0, 1, 2, 3, 3, 3, 3], 4, ((2, 1),))
    2
    """
    nearest = 0
    for n, most in windows:
        for at in range(len(rows) - n + 1):
            if rows[at + n - 1] - rows[at] + 1 > most:
                low, high = at - limit, at - limit + n - 1
                nearest = max(nearest, 1 + (0 if low <= 0 <= high else min(abs(low), abs(high))))
    return nearest


def why_not_fused(head_size: int, device: torch.device | str) -> str:
    """Why the kernel cannot be used here, as a part of a sentence; nothing if it can."""
    import torch

    if torch.device(device).type != "cuda":
        return "it needs a CUDA device"
    if head_size != HEAD_SIZE:
        return f"it needs heads of size {HEAD_SIZE}, and the model's are of size {head_size}"
    if torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        return f"it needs compute capability {_LEAST_CAPABILITY[0]}.{_LEAST_CAPABILITY[1]} or more"
    try:
        _kernel()
    except ImportError:
        return "it needs cupy: pip install 'tamis[gpu]'"
    except Exception as exc:  # no compiler, no headers: whatever the library raises, the plain way works
        return f"its kernel cannot be compiled ({type(exc).__name__}: {str(exc)[:200]})"
    return ""


@lru_cache(maxsize=1)
def _kernel() -> Any:
    import cupy

    source = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    return cupy.RawModule(code=source, options=("--std=c++17",), backend="nvrtc").get_function("attention")


def fused(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position_keys: torch.Tensor,
    position_queries: torch.Tensor,
    where: Distances,
    layout: dict[str, torch.Tensor],
) -> torch.Tensor:
    """The attention of all sequences; [tokens, heads * 64], bf16; zeros between sequences.

    `queries`, `keys`: [tokens, heads, 64] with one row stride; `values`: [heads * 64, tokens]; `position_*`: [heads, rows, 64];
    `layout`: int32 tensors starts, lengths, tile_of, tile_at (packed_deberta.Packed).
    """
    import cupy
    import numpy as np
    import torch

    n_tokens, n_heads, _ = queries.shape
    # Zeros, not anything: rows between sequences go through the layers too, and are multiplied by weights of 0 in the next.
    out = torch.zeros((n_tokens, n_heads * HEAD_SIZE), dtype=torch.bfloat16, device=queries.device)
    n_tiles = len(layout["tile_of"])
    arguments = (
        queries.data_ptr(), keys.data_ptr(), values.data_ptr(), position_keys.data_ptr(), position_queries.data_ptr(),
        where.rows.data_ptr() + 2 * where.limit, out.data_ptr(), layout["starts"].data_ptr(), layout["lengths"].data_ptr(),
        layout["tile_of"].data_ptr(), layout["tile_at"].data_ptr(), np.int32(n_tiles), np.int64(queries.stride(0)), np.int64(values.stride(0)),
        np.int64(out.stride(0)), np.int32(position_keys.shape[1]), np.float32(_LOG2_E / math.sqrt(3 * HEAD_SIZE)),
        np.int32(where.far), np.int32(where.flat),
    )  # fmt: skip
    with cupy.cuda.Device(queries.device.index or 0), cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
        _kernel()((-(-n_tiles // _WARPS), n_heads), (32 * _WARPS,), arguments)
    return out


def plain(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position_keys: torch.Tensor,
    position_queries: torch.Tensor,
    where: Distances,
    spans: list[tuple[int, int]],
) -> torch.Tensor:
    """The same with torch alone, sequence by sequence (`spans`: first token, number of tokens), in the inputs' own precision."""
    import torch

    n_tokens, n_heads, size = queries.shape
    out = torch.zeros((n_tokens, n_heads * size), dtype=queries.dtype, device=queries.device)
    scale = 1 / math.sqrt(3 * size)
    for start, n in spans:
        here = slice(start, start + n)
        q, k = (x[here].transpose(0, 1) for x in (queries, keys))
        v = values[:, here].view(n_heads, size, n).transpose(1, 2)
        at = torch.arange(n, device=queries.device)
        row = where.rows[(at[:, None] - at[None, :]) + where.limit].long().expand(n_heads, n, n)
        scores = q @ k.transpose(1, 2)
        scores += torch.gather(q @ position_keys.transpose(1, 2), 2, row)
        scores += torch.gather(position_queries @ k.transpose(1, 2), 1, row)
        weights = torch.softmax(scores * scale, -1)
        out[here] = (weights @ v).transpose(0, 1).reshape(n, n_heads * size)
    return out
