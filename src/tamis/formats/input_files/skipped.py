"""Decide by name which files of a folder are input, and count those that are skipped, with reasons and examples.

Case does not matter: `A.JSONL.GZ` is read like `a.jsonl.gz`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, TypedDict

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.formats.compression.codecs import SUFFIXES

HIDDEN = "hidden, the name begins with . or _"
NOT_REGULAR = "no regular file: a pipe, a socket or a device"
OWN_OUTPUT = "the output of this run"
OTHER_OUTPUT = "the output of a Tamis run: read only where it is named as input itself"
SEEN_FOLDER = "a link to a folder that is read under another name"
DEAD_LINK = "a link to nothing"
_OTHER_ENDING = "other endings"
_PACKED = (".rar", ".lz4", ".zip", ".z", ".br", ".sz", ".snappy", ".lzma", ".lzo", ".7z", ".zstd", ".gzip", *SUFFIXES)
_MAX_ENDINGS = 20
_MAX_EXAMPLES = 3


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


def checked_paths(value: Any, subject: str) -> Any:
    """Return a single path unchanged and several paths as a list; paths of a set are returned in order.

    Raises UsageError, whose message begins with `subject`, for anything else.
    """
    if isinstance(value, (str, os.PathLike)):
        return value
    are_several = isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray))
    paths = list(value) if are_several else [value]
    for path in paths:
        if not isinstance(path, (str, os.PathLike)):
            is_number = isinstance(path, (int, float)) and not isinstance(path, bool)
            advice = (
                f"; write a name that looks like a number in quotes in a recipe, and as ./{path} on the command line"
            )
            raise UsageError(
                f"{subject}: expected a path or a list of paths, got {path!r}{advice if is_number else ''}"
            )
    return sorted(paths, key=os.fspath) if isinstance(value, (set, frozenset)) else paths


class SkippedReport(TypedDict):
    """A `SkippedEntry` as plain values."""

    reason: str
    n: int
    examples: list[str]


@dataclass(frozen=True)
class SkippedEntry:
    """Files below an input that were not read, for one reason."""

    reason: str
    n: int
    examples: list[str] = field(default_factory=list)

    def report(self) -> SkippedReport:
        return {"reason": self.reason, "n": self.n, "examples": self.examples}


@dataclass
class SkippedFiles:
    """Counts by reason. Bounded: however many files there are, it holds a few names and a few reasons."""

    _counts: dict[str, tuple[int, list[str]]] = field(default_factory=dict)

    def add(self, reason: str, path: str) -> None:
        n, examples = self._counts.get(reason, (0, []))
        self._counts[reason] = (n + 1, examples if len(examples) >= _MAX_EXAMPLES else [*examples, path])

    def add_ending(self, path: str, accepted: Sequence[str]) -> None:
        """Record a skipped file whose name does not end in one of `accepted`."""
        reason = ending(path, accepted)
        if reason not in self._counts and len(self._counts) >= _MAX_ENDINGS:
            reason = _OTHER_ENDING
        self.add(reason, path)

    def __len__(self) -> int:
        return sum(n for n, _ in self._counts.values())

    def entries(self) -> list[SkippedEntry]:
        """Return one entry per reason, the most frequent first."""
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1][0], item[0]))
        return [SkippedEntry(reason, n, examples) for reason, (n, examples) in ordered]


def ending(path: str, accepted: Sequence[str]) -> str:
    """Return why a file is not read, judging by the end of its name.

    >>> ending("a/b.txt", (".jsonl",)), ending("README", (".jsonl",))
    ('ends in .txt', 'no ending')
    >>> ending("b.jsonl.rar", (".jsonl",))
    'ends in .rar, a compression that is not read: recompress it, e.g. with zstd'
    """
    stem, suffix = os.path.splitext(os.path.basename(path).lower())
    if not suffix:
        return "no ending"
    if suffix in _PACKED and suffix_of(stem, accepted):
        return f"ends in {suffix}, a compression that is not read: recompress it, e.g. with zstd"
    return f"ends in {suffix}" if len(suffix) <= 12 and suffix[1:].isalnum() and suffix.isascii() else _OTHER_ENDING


def skipped_lines(entries: Iterable[SkippedEntry]) -> list[str]:
    """Return one human-readable line per reason.

    >>> skipped_lines([SkippedEntry("ends in .txt", 3, ["a.txt", "b.txt"])])
    ['skipped, not read: 3 (ends in .txt): a.txt, b.txt and 1 more']
    """
    lines = []
    for entry in entries:
        more = entry.n - len(entry.examples)
        shown = ", ".join(entry.examples) + (f" and {more:,} more" if more > 0 else "")
        lines.append(f"skipped, not read: {entry.n:,} ({entry.reason}): {shown}")
    return lines
