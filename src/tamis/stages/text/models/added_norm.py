"""Layer norm of a sum of two tensors, for BERT and DeBERTa: a small CUDA kernel, or torch where it cannot be used.

torch adds, writes, reads and normalises; the kernel (added_norm.cu) reads both and writes once, and saves 6 of 100
parts of the time of a base model on an H200. It is compiled when it is first used (cupy, by NVRTC). Called by
packed_bert.py and packed_deberta.py.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from tamis._lazy import F, np, torch

_ROWS = 8  # of a block
_MOST = 2048  # values of a row: they are held in registers


def added_norm(
    x: torch.Tensor, y: torch.Tensor, norm: tuple[torch.Tensor, torch.Tensor], eps: float, fused: bool
) -> torch.Tensor:
    """Compute the layer norm of x + y (both [rows, width], contiguous) with the weight and bias `norm`.

    `fused`: the result of `can_be_fused`; then it is called inside `in_turn_with_torch`.
    """
    n, width = x.shape
    if not fused:
        return F.layer_norm(x + y, (width,), *norm, eps)
    out = torch.empty_like(x)
    arguments = (
        x.data_ptr(),
        y.data_ptr(),
        norm[0].data_ptr(),
        norm[1].data_ptr(),
        out.data_ptr(),
        np.int64(n),
        np.float32(eps),
    )
    _kernel(width)((-(-n // _ROWS),), (32 * _ROWS,), arguments)
    return out


def can_be_fused(width: int, device: torch.device | str, dtype: torch.dtype) -> bool:
    """Return True if the kernel can be used for rows of this width; compiles it."""
    if torch.device(device).type != "cuda" or dtype is not torch.bfloat16 or width % 8 or width > _MOST:
        return False
    if torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        _kernel(width)
    except Exception:  # no cupy, compiler or headers: torch works without
        return False
    return True


@lru_cache(maxsize=8)
def _kernel(width: int) -> Any:
    import cupy

    source = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    return cupy.RawModule(code=source, options=("--std=c++17", f"-DWIDTH={width}"), backend="nvrtc").get_function(
        "added_norm"
    )
