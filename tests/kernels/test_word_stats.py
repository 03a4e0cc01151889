"""Listed words, documents longer than a piece, and the limit above which n-grams are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tamis.kernels.buffers import string_buffers
from tamis.kernels.text.text_stats import statistics
from tamis.kernels.text.word_stats import COMMON_WORDS, COUNTS, PIECE, SYMBOL_WORDS, FractionRequest, word_counts
from tests.reference import text_twin


def test_listed_words_are_found_by_their_hashes() -> None:
    words = [*COMMON_WORDS, *SYMBOL_WORDS]
    found = statistics(string_buffers(pa.array([*words, "then", "b", "...."])), ["common_words", "symbol_words"])
    assert found["common_words"].tolist() == [1] * len(COMMON_WORDS) + [0] * (len(SYMBOL_WORDS) + 3)
    assert found["symbol_words"].tolist() == [0] * len(COMMON_WORDS) + [1] * len(SYMBOL_WORDS) + [0] * 3


def test_documents_longer_than_a_piece() -> None:
    text = ("the é #a# ... x" + "\u3000" * 5) * (PIECE // 20) + "y" * (PIECE + 50) + " z the"
    names = [*COUNTS, "words", "words_with_alpha"]
    found = statistics(string_buffers(pa.array([text, "y" * PIECE])), names)
    for row, document in enumerate((text, "y" * PIECE)):
        expected = text_twin.words_of(document)
        assert {name: int(found[name][row]) for name in names} == {name: expected[name] for name in names}


def test_more_words_than_the_limit_have_no_fractions() -> None:
    raw = np.frombuffer(b"a b a b a b", np.uint8)
    arguments = (
        raw,
        np.array([0]),
        np.array([11]),
        np.array([6]),
        np.array([11]),
        FractionRequest(last_n=2, duplicates=4),
    )
    assert word_counts(*arguments)[1][0, 11 + 2] == 7 / 11
    assert word_counts(*arguments, max_words=5)[1][0, 11 + 2] == 1.0
