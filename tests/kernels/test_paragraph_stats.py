"""paragraph_counts by both definitions, phrase_counts, and several rounds over one document."""

from __future__ import annotations

import numpy as np
import pytest

from tamis.kernels.text import _seen
from tamis.kernels.text.paragraph_stats import paragraph_counts, phrase_counts
from tests.reference import text_twin


def count(text: str, stripped: bool = False) -> list[int]:
    raw = np.frombuffer(text.encode(), np.uint8)
    newlines = np.array([text.count("\n")])
    found = paragraph_counts(raw, np.array([0]), np.array([raw.size]), newlines, stripped)
    return [int(column[0]) for column in found.values()]


def phrases(text: str) -> list[int]:
    raw = np.frombuffer(text.encode(), np.uint8)
    return [int(column[0]) for column in phrase_counts(raw, np.array([0]), np.array([raw.size])).values()]


@pytest.mark.parametrize(
    ("text", "plain", "stripped"),
    [
        ("", [1, 0, 0, 0], [1, 0, 0, 0]),
        ("\n\n", [2, 0, 1, 0], [1, 0, 0, 0]),
        ("\n\n\n\n\n", [3, 1, 1, 0], [1, 0, 0, 0]),
        ("é\n\né\n\n\né", [3, 4, 1, 1], [3, 3, 2, 2]),
        ("a\nb\n\na\nb \n", [2, 8, 0, 0], [2, 6, 1, 3]),
        (" \n\na\n\n\n\na\n\n ", [5, 4, 2, 2], [2, 2, 1, 1]),
    ],
)
def test_by_hand(text: str, plain: list[int], stripped: list[int]) -> None:
    assert count(text) == plain
    assert count(text, stripped=True) == stripped


def test_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n\n".join(str(k * k % 2003) for k in range(6000))
    expected = list(text_twin.paragraphs_of(text).values())
    for slots in (_seen.MAX_SLOTS, 4096):
        monkeypatch.setattr(_seen, "MAX_SLOTS", slots)
        assert count(text) == [*expected[:2], *expected[4:6]]
        assert count(text, stripped=True)[2:] == expected[-2:]


@pytest.mark.parametrize("phrase", text_twin.POLICY)
def test_every_policy_phrase_at_every_place(phrase: str) -> None:
    for before in range(0, 130, 3):
        text = "x" * before + phrase.upper()
        assert phrases(text) == [1, 0, 0]
        assert phrases(f"{text}\n\n{phrase[1:]}\n\n{phrase.title()}s") == [2, 0, 0]
    assert phrases(phrase[:-1]) == [0, 0, 0]


def test_kelvin_is_k_and_dotted_i_is_not_i() -> None:
    assert phrases("COO\u212aIES: use coo\u212aies") == [1, 0, 0]
    assert phrases("pr\u0130vacy policy") == [0, 0, 0]
    assert phrases("Lorem Ipsum and JavaScript") == [0, 1, 1]
