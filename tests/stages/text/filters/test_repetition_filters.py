"""The repetition filters against plain-Python definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.stages.text.filters import words
from tamis.stages.text.filters.heuristic import repetition
from tamis.stages.text.filters.heuristic.repetition import (
    RepeatedLinesByCharFilter,
    RepeatedLinesFilter,
    RepeatedParagraphsByCharFilter,
    RepeatedParagraphsFilter,
    RepeatingDuplicateNGramsFilter,
    RepeatingTopNGramsFilter,
)
from tamis.stages.text.filters.statistics import measure
from tests.support.limits import examples


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def different(pieces: list[str]) -> float:
    return len(set(pieces)) / len(pieces) if pieces else 0.0


def different_chars(pieces: list[str]) -> float:
    total = sum(map(len, pieces))
    return sum(map(len, set(pieces))) / total if total else 0.0


def top(text: str, n: int) -> float:
    words = text.split()
    if len(words) < n:
        return 1.0
    gram = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)).most_common(1)[0][0]
    return (len(text) - len(text.replace(" ".join(gram), ""))) / len(text)


def duplicate(text: str, n: int) -> float:
    """Characters of words (and of the spaces between) that lie in an n-gram met before."""
    words = text.split()
    if len(words) < n:
        return 1.0
    seen: set[tuple[str, ...]] = set()
    counted = 0  # words before this position are counted already
    n_chars = 0
    for i in range(len(words) - n + 1):
        gram = tuple(words[i : i + n])
        if gram in seen:
            new = range(max(i, counted), i + n)
            n_chars += sum(len(words[k]) for k in new) + min(len(new), n - 1)
            counted = i + n
        seen.add(gram)
    return n_chars / len(text)


DEFINITIONS: dict[str, tuple[Any, Callable[[str], float]]] = {
    "repeated_lines": (RepeatedLinesFilter(), lambda t: different(lines(t))),
    "repeated_paragraphs": (RepeatedParagraphsFilter(), lambda t: different(t.split("\n\n"))),
    "repeated_lines_char": (RepeatedLinesByCharFilter(), lambda t: different_chars(lines(t))),
    "repeated_paragraphs_char": (RepeatedParagraphsByCharFilter(), lambda t: different_chars(t.split("\n\n"))),
    "repeating_top_2grams": (RepeatingTopNGramsFilter(), lambda t: top(t, 2)),
    "repeating_top_4grams": (RepeatingTopNGramsFilter(4, 0.16), lambda t: top(t, 4)),
    "repeating_dup_2gram": (RepeatingDuplicateNGramsFilter(), lambda t: duplicate(t, 2)),
    "repeating_dup_5gram": (RepeatingDuplicateNGramsFilter(5, 0.15), lambda t: duplicate(t, 5)),
    # not compiled: counted in Python
    "repeating_top_1grams": (RepeatingTopNGramsFilter(1), lambda t: top(t, 1)),
    "repeating_dup_1gram": (RepeatingDuplicateNGramsFilter(1), lambda t: duplicate(t, 1)),
    "repeating_dup_12gram": (RepeatingDuplicateNGramsFilter(12), lambda t: duplicate(t, 12)),
}
TYPICAL = [
    None,
    "",
    "  \n ",
    "one line\none line\nanother\n\none line",
    "a b a b a b a b c",
    "the cat sat on the mat and the cat sat on the mat and the dog",
    "p\n\np\n\nq",
    "x " * 30,
]


def scores_of(one: Any, texts: list[str | None]) -> list[Any]:
    array = pa.array(texts, pa.large_string())
    scores = one.score_from(measure(array, one.statistics)) if one.statistics else one.score_batch(array)
    return scores.tolist() if isinstance(scores, np.ndarray) else list(scores)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_scores_are_what_the_definition_says(name: str) -> None:
    one, definition = DEFINITIONS[name]
    expected = [definition(t or "") for t in TYPICAL]
    assert one.name == name
    assert scores_of(one, TYPICAL) == pytest.approx(expected, abs=1e-12)
    assert [one.score_document(t or "") for t in TYPICAL] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(), st.lists(st.sampled_from(["a", "bb", "ç", "\n", "\n\n", "日", "  "]), max_size=40).map(" ".join)
        ),
        max_size=5,
    )
)
def test_scores_of_any_texts_are_what_the_definitions_say(texts: list[str | None]) -> None:
    for one, definition in DEFINITIONS.values():
        assert scores_of(one, texts) == pytest.approx([definition(t or "") for t in texts], abs=1e-12), one


@pytest.mark.parametrize(
    ("one", "empty", "blank", "kept"),
    [
        (RepeatedLinesFilter(), 0.0, 0.0, (False, False)),
        (RepeatedParagraphsFilter(), 1.0, 1.0, (True, True)),
        (RepeatedLinesByCharFilter(), 0.0, 0.0, (False, False)),
        (RepeatedParagraphsByCharFilter(), 0.0, 1.0, (False, True)),
        (RepeatingTopNGramsFilter(), 1.0, 1.0, (False, False)),
        (RepeatingDuplicateNGramsFilter(), 1.0, 1.0, (False, False)),
    ],
)
def test_empty_blank_and_null_texts_have_a_score(one: Any, empty: float, blank: float, kept: tuple[bool, bool]) -> None:
    scores = scores_of(one, ["", "   ", None])
    assert scores == [empty, blank, empty]
    assert one.keep_scores(np.array(scores)).tolist() == [*kept, kept[0]]


@pytest.mark.parametrize(
    ("one", "limit", "beyond"),
    [
        (RepeatedLinesFilter(), 0.7, 0.6999),
        (RepeatedParagraphsFilter(), 0.7, 0.6999),
        (RepeatedLinesByCharFilter(), 0.8, 0.7999),
        (RepeatedParagraphsByCharFilter(), 0.8, 0.7999),
        (RepeatingTopNGramsFilter(), 0.2, 0.2001),
        (RepeatingDuplicateNGramsFilter(), 0.2, 0.2001),
    ],
)
def test_a_score_at_the_limit_is_kept(one: Any, limit: float, beyond: float) -> None:
    assert one.keep_scores(np.array([limit, beyond])).tolist() == [True, False]
    assert (one.keep_document(limit), one.keep_document(beyond)) == (True, False)


def test_words_of_a_segmented_language_are_joined_without_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "word_splitter", lambda lang: list)
    assert repetition.RepeatingTopNGramsFilter(2, lang="zh").score_document("我们我们你") == 0.8
    assert repetition.RepeatingDuplicateNGramsFilter(2, lang="zh").score_document("我们我们你") == 0.4


def test_n_must_be_a_number_of_words() -> None:
    for n in (0, -1, 1.5, True):
        with pytest.raises(UsageError, match="n must be a whole number of at least 1"):
            RepeatingTopNGramsFilter(n)  # type: ignore[arg-type]
