"""long_fractions gives what word_counts gives, also with a tiny table and many rounds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tamis.kernels.text._ngrams import DUPLICATE, GOPHER_DUPLICATE, GOPHER_TOP, TOP
from tamis.kernels.text.long_repetition import long_fractions
from tamis.kernels.text.word_stats import FractionRequest
from tests.reference import text_twin

EVERYTHING = FractionRequest(last_n=10, duplicates=2044, tops=2044, joins=2044)
KINDS = {
    "top_{}_gram_fraction": TOP,
    "duplicate_{}_gram_fraction": DUPLICATE,
    "gopher_top_{}_gram_fraction": GOPHER_TOP,
    "gopher_duplicate_{}_gram_fraction": GOPHER_DUPLICATE,
}


def text(seed: int, n_words: int, n_different: int) -> str:
    chosen = random.Random(seed)
    words = ["ab"[k % 2] * (k % 5 + 1) + "é" * (k % 7 == 0) + str(k // 3) for k in range(n_different)]
    return "".join(chosen.choice(words) + chosen.choice([" ", " ", "\n", "  "]) for _ in range(n_words))


@pytest.mark.parametrize("max_slots", [1 << 22, 64])
@pytest.mark.parametrize("document", ["a b", "a b a b a b", text(1, 300, 6), text(2, 900, 40), "x", "ab c a bc " * 9])
def test_equals_the_twin(document: str, max_slots: int) -> None:
    raw = np.frombuffer(b"before " + document.encode() + b" after", np.uint8)
    n_words, n_chars = len(document.split()), len(document)
    found = long_fractions(raw, 7, raw.size - 6, n_words, n_chars, EVERYTHING, max_slots)
    expected = text_twin.fractions(document)
    for pattern, kind in KINDS.items():
        for n in range(2, 11):
            assert found[kind + n] == pytest.approx(expected[pattern.format(n)], rel=1e-12, abs=1e-12), (pattern, n)
