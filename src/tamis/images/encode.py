"""Pixels as a stored image again: for images that a stage changed, and for thumbnails."""

from __future__ import annotations

import io
from typing import Any

from tamis._lazy import np
from tamis.errors import MissingExtra, UsageError

QUALITY = 92


def encode(pixels: np.ndarray[Any, Any], kind: str, quality: int = QUALITY) -> tuple[bytes, str]:
    """Encode height x width x 3 bytes as JPEG or PNG; return (bytes, format).

    Anything but jpeg becomes PNG, which loses nothing.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise UsageError(
            f"image_data: expected an array of height x width x 3 bytes (uint8), got {pixels.dtype} {pixels.shape}"
        )
    try:
        if kind == "jpeg":
            import simplejpeg

            return simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=quality, colorspace="RGB"), "jpeg"
        from PIL import Image
    except ImportError:
        raise MissingExtra("writing images", "image") from None
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue(), "png"
