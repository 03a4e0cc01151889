"""Normalization: how a text is rewritten before it is hashed, and which of equal documents is kept.

Part of the identity of a deduplication.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

from tamis._lazy import pa, pc
from tamis.errors import UsageError, check_choice

NORMALIZATION_VERSION = 1
MODES: dict[str, str] = {
    "none": "the text as it is",
    "strip": "without whitespace at both ends",
    "nfc": "in Unicode normal form C",
    "casefold": "in normal form KC, case-folded, every run of whitespace one space, none at the ends",
    "alphanumeric": "in normal form KC, case-folded, letters and digits only",
}
KEEP = ("first", "longest", "best")
_OTHER = re.compile(r"[\W_]+")


def check_mode(caller: str, normalize_text: Any) -> str:
    """Return the mode that `normalize_text` names: False is "none", True is "casefold"."""
    if isinstance(normalize_text, bool):
        return "casefold" if normalize_text else "none"
    mode = str(normalize_text).lower()
    if mode not in MODES:
        modes = "; ".join(f"{name}: {meaning}" for name, meaning in MODES.items())
        raise UsageError(f"{caller}: normalize_text must be True, False or one of {modes}; got {normalize_text!r}")
    return mode


def check_keep(caller: str, keep: str, keep_by: str | None) -> None:
    check_choice(f"{caller}: keep", keep, KEEP)
    if (keep == "best") != (keep_by is not None):
        raise UsageError(f"{caller}: keep='best' goes with keep_by, the column whose highest value is kept")


def normalized(texts: pa.Array, mode: str) -> pa.Array:
    """Return the normalized texts; null stays null."""
    if mode == "none":
        return texts
    if mode == "nfc":
        return pc.utf8_normalize(texts, form="NFC")
    return pa.array([None if t is None else rewritten(t, mode) for t in texts.to_pylist()], pa.large_string())


def rewritten(text: str, mode: str) -> str:
    """Return one text normalized."""
    return _REWRITE[mode](text)


_REWRITE: dict[str, Callable[[str], str]] = {
    "none": lambda text: text,
    "strip": str.strip,
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "casefold": lambda text: " ".join(unicodedata.normalize("NFKC", text).casefold().split()),
    "alphanumeric": lambda text: _OTHER.sub("", unicodedata.normalize("NFKC", text).casefold()),
}
