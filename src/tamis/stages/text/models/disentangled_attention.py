"""Disentangled attention of DeBERTa-v2/v3 over packed sequences: a fused CUDA kernel, or torch without one.

score(i, j) = (q_i.k_j + q_i.Pk[r(i-j)] + k_j.Pq[r(i-j)]) / sqrt(3 * head size), r = row of the table of relative
positions.

The kernel is in disentangled_attention.cu and is compiled when it is first used (cupy, by NVRTC, about 3 s once per
machine). On an H200 at 1,024 tokens it is 1.6 times as fast as the same in Triton, whose gathers within a tile took two
thirds of the time, and the whole model is 3.4 to 3.7 times as fast as transformers' own
(docs/explanation/benchmarks-gpu.md).
Called by packed_deberta.py only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, torch
from tamis.errors import install_command

if TYPE_CHECKING:
    from torch import Tensor

HEAD_SIZE = 64
TILE = 256  # queries of a block
ALIGN = 8  # sequences start at multiples of so many tokens
N_TRAILING = 128  # tokens that must be readable after the last sequence
# So many distances next to each other have at most so many rows: what the kernel has room for.
_WINDOWS = ((95, 96), (47, 48))
_WARPS = 8
_WARP_BYTES = 2 * (32 * 128 + 16 * 56)  # of shared memory: the ring and a window of 16 keys
_KEYS_AND_VALUES_BYTES = 2 * 64 * HEAD_SIZE * 2
_LOG2_E = 1.4426950408889634
_LEAST_CAPABILITY = (8, 0)  # mma with bf16


@dataclass(frozen=True)
class Distances:
    """The row of the table of relative positions for every distance from -limit to limit."""

    rows: Tensor  # int16, at index distance + limit
    limit: int
    linear: int  # up to this distance to both sides the row is that of distance 0 and the distance
    reach: int  # beyond this distance to both sides the row is always the same
    steep: bool  # rows follow each other faster than distances: nothing for the kernel
    n_rows: int  # of the table

    def to(self, device: str | torch.device) -> Distances:
        return replace(self, rows=self.rows.to(device))


def distances(limit: int, buckets: int, max_distance: int) -> Distances:
    """Return rows as transformers computes them: `buckets` each side, the nearer half linear, the rest logarithmic."""
    middle = buckets // 2
    d = torch.arange(-limit, limit + 1)
    size = torch.where(d.abs() < middle, torch.tensor(middle - 1), d.abs())
    stretched = torch.ceil(torch.log(size / middle) / math.log((max_distance - 1) / middle) * (middle - 1)) + middle
    bucket = torch.where(size <= middle, d, (stretched * d.sign()).to(d.dtype))
    rows = (bucket + buckets).clamp(0, 2 * buckets - 1).to(torch.int16)
    return Distances(rows, limit, middle, reach_of(rows, limit), is_steep(rows, _WINDOWS), 2 * buckets)


def reach_of(rows: torch.Tensor, limit: int) -> int:
    """Return the distance beyond which rows are constant, plus the width of a tile; at most `limit`.

    Thus only tiles of constant rows extend beyond it.

    >>> import torch
    >>> reach_of(torch.tensor([0, 0, 0, 1, 2, 3, 3, 3, 3]), 4), reach_of(torch.arange(2001).clamp(800, 1300), 1000)
    (4, 428)
    """
    differ = (rows[1:] != rows[:-1]).nonzero().flatten()
    if not len(differ):
        return 0
    furthest = max(limit - int(differ[0]), int(differ[-1]) + 1 - limit)
    return min(limit, furthest + N_TRAILING)


def is_steep(rows: torch.Tensor, windows: tuple[tuple[int, int], ...]) -> bool:
    """Return True if any n adjacent distances span more than m rows, for any (n, m), or if rows decrease.

    >>> import torch
    >>> is_steep(torch.tensor([0, 1, 1, 2, 4]), ((3, 3),)), is_steep(torch.tensor([0, 1, 1, 2, 3]), ((3, 3),))
    (True, False)
    """
    if bool((rows[1:] < rows[:-1]).any()):
        return True
    return any(bool((rows[n - 1 :] - rows[: len(rows) - n + 1] + 1 > most).any()) for n, most in windows)


@dataclass(frozen=True)
class Variant:
    """Compilation and launch parameters of the kernel."""

    resident: bool  # both tables of a head in shared memory
    shared_bytes: int
    n_blocks: int  # of each head at most; 0: as many as there are tiles


def variant(n_rows: int, reach: int, n_heads: int, shared_bytes: int, n_multiprocessors: int) -> Variant | None:
    """Return the kernel variant: with the tables in shared memory if `shared_bytes` suffice, else without.

    `shared_bytes`: shared memory of a multiprocessor. Returns None if even the variant without tables needs
    more.

    >>> variant(512, 639, 12, 232_448, 132)
    Variant(resident=True, shared_bytes=229886, n_blocks=11)
    >>> variant(512, 639, 12, 101_376, 108)
    Variant(resident=False, shared_bytes=98814, n_blocks=0)
    >>> variant(512, 639, 12, 65_536, 48)
    """
    least = _WARPS * _WARP_BYTES + _KEYS_AND_VALUES_BYTES + 2 * (2 * reach + 1)
    tables = 2 * n_rows * HEAD_SIZE * 2
    if least + tables <= shared_bytes:
        return Variant(True, least + tables, max(1, n_multiprocessors // n_heads))
    return Variant(False, least, 0) if least <= shared_bytes else None


def paired(table: torch.Tensor) -> torch.Tensor:
    """Reorder a table of positions ([heads, rows, 64], bf16) into row pairs, as the kernel's threads hold them.

    Of two rows, thread c takes 16 bytes at a time: a word of the first, the same word of the second, and the
    next of both.
    """
    n_heads, n_rows, _ = table.shape
    words = table.contiguous().view(torch.int32).view(n_heads, n_rows // 2, 2, 2, 4, 2, 2)
    return words.permute(0, 1, 3, 5, 4, 6, 2).contiguous().view(torch.bfloat16).view(table.shape)


def why_not_fused(head_size: int, n_heads: int, where: Distances, device: torch.device | str) -> str:
    """Return why the kernel cannot be used here, as part of a sentence; "" if it can."""
    if torch.device(device).type != "cuda":
        return "it needs a CUDA device"
    if head_size != HEAD_SIZE:
        return f"it needs heads of size {HEAD_SIZE}, and the model's are of size {head_size}"
    if torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        return f"it needs compute capability {_LEAST_CAPABILITY[0]}.{_LEAST_CAPABILITY[1]} or more"
    if where.steep or where.n_rows % 16:
        return "the model's table of positions is of another shape"
    how = _variant_on(torch.device(device).index or 0, where.n_rows, where.reach, n_heads)
    if how is None:
        return "a multiprocessor of this device has too little shared memory"
    try:
        _kernel(how)
    except ImportError:
        return f"it needs cupy: {install_command('gpu')}"
    except Exception as exc:  # no compiler or headers: the torch version works without
        return f"its kernel cannot be compiled ({type(exc).__name__}: {str(exc)[:200]})"
    return ""


@lru_cache(maxsize=4)
def _kernel(how: Variant) -> Any:
    import cupy

    source = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    options = ("--std=c++17", f"-DRESIDENT={how.resident:d}")
    kernel = cupy.RawModule(code=source, options=options, backend="nvrtc").get_function("attention")
    kernel.max_dynamic_shared_size_bytes = how.shared_bytes
    return kernel


@lru_cache(maxsize=16)
def _variant_on(device: int, n_rows: int, reach: int, n_heads: int) -> Variant | None:
    card = torch.cuda.get_device_properties(device)
    return variant(n_rows, reach, n_heads, card.shared_memory_per_block_optin, card.multi_processor_count)


def fused(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position_keys: torch.Tensor,
    position_queries: torch.Tensor,
    where: Distances,
    layout: dict[str, torch.Tensor],
    out: torch.Tensor,
) -> None:
    """Compute the attention of all sequences into `out` ([tokens, heads * 64], bf16).

    Rows between sequences stay as they are. `queries`, `keys`: [tokens, heads, 64] with one row stride;
    `values`: [heads * 64, tokens]; `position_*`: [heads, rows, 64], those of queries `paired`; `layout`: int32
    tensors starts, lengths, tile_of, tile_at (packed_deberta.Packed). Called inside `in_turn_with_torch`.
    """
    n_heads = queries.shape[1]
    n_tiles, n_rows = len(layout["tile_of"]), position_keys.shape[1]
    how = _variant_on(queries.device.index or 0, n_rows, where.reach, n_heads)
    assert how is not None, "why_not_fused() was not called"
    arguments = (
        queries.data_ptr(),
        keys.data_ptr(),
        values.data_ptr(),
        position_keys.data_ptr(),
        position_queries.data_ptr(),
        where.rows.data_ptr() + 2 * where.limit,
        out.data_ptr(),
        layout["starts"].data_ptr(),
        layout["lengths"].data_ptr(),
        layout["tile_of"].data_ptr(),
        layout["tile_at"].data_ptr(),
        np.int32(n_tiles),
        np.int64(queries.stride(0)),
        np.int64(values.stride(0)),
        np.int64(out.stride(0)),
        np.int32(n_rows),
        np.float32(_LOG2_E / math.sqrt(3 * HEAD_SIZE)),
        np.int32(where.linear),
        np.int32(where.reach),
    )
    n_blocks = min(n_tiles, how.n_blocks or n_tiles)
    _kernel(how)((n_blocks, n_heads), (32 * _WARPS,), arguments, shared_mem=how.shared_bytes)


def plain(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    position_keys: torch.Tensor,
    position_queries: torch.Tensor,
    where: Distances,
    spans: list[tuple[int, int]],
    out: torch.Tensor,
) -> None:
    """Compute the same as `fused` with torch alone, sequence by sequence, in the inputs' own precision.

    `spans`: first token and number of tokens of each sequence.
    """
    _, n_heads, size = queries.shape
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
