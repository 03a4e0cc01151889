"""char_counts: words and letters across block borders, and near the end of the buffer."""

from __future__ import annotations

import numpy as np
import pytest

from tamis.kernels.text.char_counts import COUNTS, char_counts


def count(text: str, padding: int = 0) -> dict[str, int]:
    raw = text.encode()
    data = np.frombuffer(b"x" * padding + raw + b"y" * padding, np.uint8)
    found = char_counts(data, np.array([padding]), np.array([padding + len(raw)]))
    assert tuple(found) == tuple(COUNTS)
    return {name: int(column[0]) for name, column in found.items()}


@pytest.mark.parametrize("padding", [0, 1, 200])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 128, 129, 200])
def test_one_word_of_any_length(length: int, padding: int) -> None:
    assert (count("7" * length, padding)["words"], count("7" * length, padding)["words_with_alpha"]) == (1, 0)
    for place in {0, length // 2, length - 1}:
        text = "7" * place + "é" + "7" * (length - place - 1)
        assert (count(text, padding)["words"], count(text, padding)["words_with_alpha"]) == (1, 1)


def test_dots_are_counted_as_str_count_does() -> None:
    assert [count("." * n)["ellipses"] for n in (2, 3, 5, 6, 64, 65, 66)] == [0, 1, 1, 2, 21, 21, 22]
    assert count(".. . ...…")["ellipses"] == 2


def test_a_wide_space_over_the_border_of_a_block() -> None:
    for before in (61, 62, 63, 64):
        assert count("a" * before + "\u3000" + "b") == count("a" * before + "\u3000" + "b", 150)
        assert count("a" * before + "\u3000" + "b")["words"] == 2


def test_nothing() -> None:
    assert set(count("").values()) == {0}
    assert all(
        column.size == 0 for column in char_counts(*(np.empty(0, t) for t in (np.uint8, np.int64, np.int64))).values()
    )
