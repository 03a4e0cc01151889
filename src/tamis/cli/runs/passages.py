"""Passages of normalized texts, in bytes of the texts as they are in the input.

Tables have places in the texts as they were compared. Texts in an index are those that were compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tamis.dedup.kinds import SUBSTRINGS

if TYPE_CHECKING:
    from tamis.observe.passages import Passage


def as_written(output: str, passages: list[Passage]) -> list[Passage]:
    """Map passages to the texts of the input; those whose text cannot be read now stay as they were compared."""
    from tamis.observe.duplicates import settings_of

    settings = settings_of(output) if passages else {}
    if settings.get("name") != SUBSTRINGS.title or settings.get("normalize_text", "none") == "none":
        return passages
    places = _reader(output, str(settings["normalize_text"]), str(settings.get("text_field", "text")))
    return [_mapped(passage, places) for passage in passages]


def _mapped(passage: Passage, places: Callable[[str], Any]) -> Passage:
    mine, first = places(passage.document), None if passage.entry else places(passage.first)
    if mine is not None and passage.end < len(mine):
        passage = replace(passage, start=int(mine[passage.start]), end=int(mine[passage.end - 1]) + 1)
    if first is not None and passage.first_start < len(first):
        passage = replace(passage, first_start=int(first[passage.first_start]))
    return passage


def _reader(output: str, mode: str, field: str) -> Callable[[str], Any]:
    """Return the function that gives the place in a document (FILE:OFFSET) of each byte that was compared."""
    import numpy as np

    from tamis.dedup.substrings.normalization import origins
    from tamis.observe.duplicates import read_side, read_times

    times = read_times(output)

    @cache
    def places(document: str) -> Any:
        path, _, offset = document.rpartition(":")
        text = read_side(path, int(offset), field, times).text
        return None if text is None else origins(np.frombuffer(text.encode("utf-8", "replace"), np.uint8), mode)

    return places
