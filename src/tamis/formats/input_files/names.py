"""What the name of a file says about what is in it. Case does not matter: `A.JSONL.GZ` is read like `a.jsonl.gz`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from tamis.errors import UsageError


def suffix_of(path: str, suffixes: Sequence[str]) -> str:
    """Return the longest of `suffixes` (lower case) that `path` ends in, or "" if it ends in none.

    >>> suffix_of("a/B.JSONL.gz", (".jsonl", ".jsonl.gz", ".gz")), suffix_of("note.txt", (".jsonl",))
    ('.jsonl.gz', '')
    """
    plain = path.lower()
    return max((s for s in suffixes if plain.endswith(s)), key=len, default="")


def ends_in(path: str, suffixes: tuple[str, ...]) -> bool:
    """Return True if `path` ends in one of the suffixes (lower case)."""
    return path.lower().endswith(suffixes)


def checked_paths(given: Any, what: str) -> Any:
    """Return a single path unchanged and several paths as a list; paths of a set are returned in order.

    Raises UsageError, whose message begins with `what`, for anything else.
    """
    if isinstance(given, (str, os.PathLike)):
        return given
    are_several = isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray))
    paths = list(given) if are_several else [given]
    for path in paths:
        if not isinstance(path, (str, os.PathLike)):
            is_number = isinstance(path, (int, float)) and not isinstance(path, bool)
            advice = (
                f"; write a name that looks like a number in quotes in a recipe, and as ./{path} on the command line"
            )
            raise UsageError(f"{what}: expected a path or a list of paths, got {path!r}{advice if is_number else ''}")
    return sorted(paths, key=os.fspath) if isinstance(given, (set, frozenset)) else paths
