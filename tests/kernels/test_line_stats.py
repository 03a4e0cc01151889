"""line_counts: several rounds over one document give what one round gives; ellipsis marks and line runs by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tamis.kernels.text import _seen
from tamis.kernels.text.line_stats import line_counts
from tests.reference import text_twin


def count(text: str) -> dict[str, int]:
    raw = np.frombuffer(text.encode(), np.uint8)
    found = line_counts(raw, np.array([0]), np.array([raw.size]), np.array([text.count("\n")]))
    return {name: int(column[0]) for name, column in found.items()}


def test_by_hand() -> None:
    found = count("\n a \nb.\nb.\n\n• c\n read MORE \n")
    assert found == {
        "sentences": 5,
        "sentence_chars": 21,
        "duplicate_sentences": 1,
        "duplicate_sentence_chars": 2,
        "bullet_sentences": 1,
        "ellipsis_sentences": 1,
        "sentences_without_end_mark": 3,
        "terminal_sentences": 2,
        "short_sentences": 5,
        "line_runs": 7,
        "duplicate_line_runs": 2,
        "duplicate_line_run_chars": 2,
    }


@pytest.mark.parametrize("line", [*text_twin.ELLIPSIS_MARKS, "..", ".", "[..]", "(…)", "»", "READ MORE..", "ead more"])
def test_ellipsis_marks(line: str) -> None:
    for text in (line, f"x {line}", f" {line}\t"):
        assert count(text)["ellipsis_sentences"] == text_twin.lines_of(text)["ellipsis_sentences"]


def test_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    random_lines = random.Random(3)
    text = "\n".join(str(random_lines.randrange(3000)) + " " * (k % 3) for k in range(5000))
    expected = text_twin.lines_of(text)
    assert expected["duplicate_sentences"] > 1000
    for slots in (_seen.MAX_SLOTS, 4096):
        monkeypatch.setattr(_seen, "MAX_SLOTS", slots)
        found = count(text)
        assert {name: expected[name] for name in found} == found
