"""Rewrite texts before their passages are compared, with the origin of each byte of the result.

Works on bytes of UTF-8 and is cheap; every mode maps a character to one that takes no more bytes, or drops it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tamis._lazy import np, pa, pc

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

NORMALIZATION_VERSION = 1
MODES = {
    "none": "every byte counts",
    "whitespace": "every run of ASCII whitespace is one space",
    "case": "and ASCII letters are compared without case",
}


def compared(texts: pa.Array, mode: str) -> tuple[Array, Array, Array]:
    """Return (data, starts, ends) of the texts as they are compared; a null is empty."""
    from tamis.kernels.buffers import string_buffers

    parts = string_buffers(pc.fill_null(texts, "") if texts.null_count else texts)
    starts, ends = parts.spans()
    if mode == "none":
        return parts.data, starts, ends
    kept = _kept(parts.data, starts, ends)
    begins = np.concatenate([[0], np.cumsum(kept)])
    return _rewritten(parts.data[kept], mode), begins[starts], begins[ends]


def origins(text: Array, mode: str) -> Array | None:
    """Return the place in one text of each byte that is compared, then its length; None where that is its own."""
    if mode == "none":
        return None
    kept = _kept(text, np.zeros(1, np.int64), np.full(1, len(text)))
    return np.append(np.flatnonzero(kept), len(text))


def _spaces(data: Array) -> Array:
    spaces: Array = ((data >= 9) & (data <= 13)) | (data == 32)
    return spaces


def _kept(data: Array, starts: Array, ends: Array) -> Array:
    """Return which bytes are left when only the first of each run of whitespace is."""
    spaces = _spaces(data)
    kept = np.ones(len(data), bool)
    kept[1:] = ~(spaces[1:] & spaces[:-1])
    # The first byte of a text follows nothing.
    kept[starts[ends > starts]] = True
    return kept


def _rewritten(data: Array, mode: str) -> Array:
    table = np.arange(256, dtype=np.uint8)
    table[[*range(9, 14), 32]] = 32
    if mode == "case":
        table[65:91] += 32
    out: Array = table[data]
    return out
