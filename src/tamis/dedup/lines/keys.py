"""64-bit keys of units: a hash of each one after normalisation.

ASCII units, and for "casefold" most others, are normalised all at once (bulk.py). The rest takes the way through
Python's strings, together as far as that is faster than one by one (normal forms are not: one character that changes
makes the whole text slow). Both give what normalization.py says, byte for byte.

A key is one half of a 128-bit hash: among ten billion different units about three pairs are taken for equal by chance.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Literal

import numpy as np

from tamis.dedup.lines.bulk import STOP, BulkUnits, collapsed, packed, table
from tamis.dedup.lines.units import Units
from tamis.kernels.records.hash128 import hash_spans

Array = np.ndarray[Any, Any]
_WIDE_SPACES = "\x85\u1680\u2028\u2029"  # the others become spaces in normal form KC
_LETTERS_ONLY = ("alphanumeric", "ccnet")
_OTHER, _DIGIT = re.compile(r"[^\w\0]+|_+"), re.compile(r"\d")


class UnitKeys:
    """Makes keys, window after window; keeps the room it works in."""

    def __init__(self, mode: str, min_chars: int) -> None:
        self.mode, self.min_chars = mode, min_chars
        self._bulk = BulkUnits(mode)

    def of(self, data: Array, units: Units) -> tuple[Array, Array]:
        """Return (units, their keys), ascending, of units of at least `min_chars` characters after normalisation."""
        a, b = int(units.start[0]), int(units.stop[-1])
        other = self._bulk.load(data[a:b], units.start - a, units.end - a, units.stop - a)
        indices = np.flatnonzero(~other & (units.end - units.start >= self.min_chars))
        hashes = [self._hashed(*part) for part in self._bulk.normalized(indices)]
        indices = np.flatnonzero(other)
        if len(indices):
            hashes.append(self._of_others(data, units.start[indices], units.end[indices], indices))
        if len(hashes) == 1:
            return hashes[0]
        which, keys = (np.concatenate([f[k] for f in hashes]) for k in range(2))
        order = np.argsort(which, kind="stable")
        return which[order], keys[order]

    def _hashed(self, data: Array, start: Array, end: Array, n_chars: Array, which: Array) -> tuple[Array, Array]:
        enough = np.flatnonzero(n_chars >= self.min_chars)
        start, end = start[enough], end[enough]
        return which[enough], hash_spans(data, start, end - start)[0]

    def _of_others(self, data: Array, start: Array, end: Array, which: Array) -> tuple[Array, Array]:
        mode = self.mode
        texts = packed(data, start, end, 0)[:-1].tobytes().decode().split("\0")
        if len(texts) == len(which):
            rewritten = _normalized(texts, mode).encode().replace(b"\0", STOP)
        else:  # some text holds the separator
            spans = zip(start.tolist(), end.tolist(), strict=True)
            texts = [_normalized([data[a:b].tobytes().decode()], mode) for a, b in spans]
            rewritten = STOP.join([(t.replace("\0", "") if mode in _LETTERS_ONLY else t).encode() for t in texts])
        if mode == "casefold":
            rewritten = rewritten.translate(table(mode)[0])
        new, start, end = collapsed(np.frombuffer(rewritten + STOP, np.uint8), mode == "casefold")
        # Characters are the bytes that begin one.
        inner = np.flatnonzero((new & 0xC0) == 0x80)
        n_chars = end - start - (np.searchsorted(inner, end) - np.searchsorted(inner, start))
        return self._hashed(new, start, end, n_chars, which)


def _normalized(texts: list[str], mode: str) -> str:
    """Return the rewritten units, separated by NUL.

    For "casefold", ASCII whitespace is left to the caller.
    """
    normal = unicodedata.normalize
    if mode == "none":
        return "\0".join(texts)
    if mode == "strip":
        return "\0".join([t.strip() for t in texts])
    if mode == "nfc":
        return "\0".join([normal("NFC", t) for t in texts])
    form: Literal["NFKC", "NFKD"] = "NFKD" if mode == "ccnet" else "NFKC"
    folded = "\0".join([normal(form, t) for t in texts]).casefold()
    if mode == "casefold":
        for space in _WIDE_SPACES:
            folded = folded.replace(space, " ")
        return folded
    letters = _OTHER.sub("", folded)
    return _DIGIT.sub("0", letters) if mode == "ccnet" else letters
