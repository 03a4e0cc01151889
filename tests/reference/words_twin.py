"""Slow twin of kernels/tokens: texts cut into words by regular expressions, their ids in a dict."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain

PUNCTUATION = r"!-/:-@\[-`{-~"  # of ASCII
BERT = re.compile(rf"[^ \n{PUNCTUATION}]+|[{PUNCTUATION}]").findall
SPACES, LINES_TOO = re.compile(" ").split, re.compile("[ \n]").split
BLANKS_TOO = re.compile("[ \n\t\u00a0\u2003\u202f\u3000]").split
ODD = {
    SPACES: r"[^\S ]",
    LINES_TOO: r"[^\S \n]",
    BLANKS_TOO: r"[^\S \n\t\u00a0\u2003\u202f\u3000]",
}
AT_END = r"\s\Z"


class WordTwin:
    """Token ids by words. `words_of` cuts a text into words; `ask` returns the ids of some words.

    Texts that contain one of `marks` (patterns) are None.
    """

    def __init__(
        self,
        words_of: Callable[[str], list[str]],
        ask: Callable[[list[str]], list[list[int]]],
        marks: Sequence[str],
    ) -> None:
        self._words_of, self._ask = words_of, ask
        self._marked = re.compile("|".join(marks)).search if marks else None
        self._ids: dict[str, list[int]] = {"": []}

    def encode(self, texts: Sequence[str]) -> list[list[int] | None]:
        """Return the ids of these texts, None for those that cannot be cut."""
        words = [None if self._marked and self._marked(t) else self._words_of(t) for t in texts]
        new = list(set(chain.from_iterable(own for own in words if own is not None)) - self._ids.keys())
        self._ids |= dict(zip(new, self._ask(new), strict=True))
        return [None if own is None else [*chain.from_iterable(self._ids[w] for w in own)] for own in words]
