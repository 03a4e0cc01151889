"""Frames as the patches that Qwen's vision models read: normalised, cut into squares, two frames a patch.

In numpy, because the library's own way needs torchvision.
"""

from __future__ import annotations

from typing import Any

from tamis._lazy import np


def patches_of(
    frames: np.ndarray[Any, Any], patch: int, merge: int, together: int, mean: Any, std: Any
) -> tuple[np.ndarray[Any, Any], tuple[int, int, int]]:
    """Return patches of frames in float32, and the grid (frames, rows, columns).

    Patches are [n, 3 * together * patch * patch]. Frames are uint8 [T, H, W, 3] whose sides are multiples of patch *
    merge. The last frame is repeated if their number is no multiple of `together`.
    """
    pixels = (frames.astype(np.float32) / 255.0 - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    if extra := -len(pixels) % together:
        pixels = np.concatenate([pixels, np.repeat(pixels[-1:], extra, 0)])
    t, high, wide = len(pixels) // together, pixels.shape[1] // patch, pixels.shape[2] // patch
    planes = pixels.transpose(0, 3, 1, 2)
    cut = planes.reshape(t, together, 3, high // merge, merge, patch, wide // merge, merge, patch)
    flat = cut.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(t * high * wide, 3 * together * patch * patch)
    return np.ascontiguousarray(flat), (t, high, wide)
