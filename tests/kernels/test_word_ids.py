"""Token ids by words: the kernel gives the ids that its twin gives, however many are requested; the word table."""

from __future__ import annotations

import random
import re
import string
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.tokens.word_ids import ALL_CHARS, ASIDE, DONE, MISSING, Cut, IdRequest, WordIds, word_ids
from tamis.kernels.tokens.word_table import WordTable
from tests.reference import words_twin
from tests.support.limits import examples

MARKS = ["[SEP]", "<s>", "</s>", "\u2581x", "é["]
WHITE = [c for c in map(chr, range(0x10000)) if c.isspace()]
BLANKS = {words_twin.SPACES: " ", words_twin.LINES_TOO: " \n", words_twin.BLANKS_TOO: " \n\t\u00a0\u2003\u202f\u3000"}
PIECES = st.one_of(
    st.sampled_from(
        [
            "the",
            "a",
            "x" * 9,
            "y" * 30,
            "é" * 8,
            "中文字",
            "\U0001f600",
            " ",
            "\n",
            "\t",
            "[",
            "<",
            ",",
            ".",
            "é",
            *MARKS,
        ]
    ),
    st.sampled_from([*WHITE, *MARKS]),
    st.text(max_size=8),
)
TEXTS = st.lists(st.lists(PIECES, max_size=12).map("".join), max_size=5)
LONG_FROM = 12


def ids_of(words: list[str]) -> list[list[int]]:
    return [[ord(c) % 1000 for c in word[: ord(word[0]) % 4]] for word in words]


def kinds() -> list[tuple[Cut, words_twin.WordTwin]]:
    marks = [re.escape(mark) for mark in MARKS]
    found = [(Cut(" \n", string.punctuation, MARKS), words_twin.WordTwin(words_twin.BERT, ids_of, marks))]
    for split, odd in words_twin.ODD.items():
        aside = [*MARKS, *(c for c in WHITE if c not in BLANKS[split])]
        for at_end in (False, True):
            twin = words_twin.WordTwin(split, ids_of, [*marks, odd, *([words_twin.AT_END] if at_end else [])])
            found.append((Cut(BLANKS[split], "", aside, at_end), twin))
    return found


class Known:
    """Asks until every word is known."""

    def __init__(self, cut: Cut) -> None:
        self.cut, self.table, self.long = cut, WordTable(), WordTable()

    def once(self, texts: list[str], wanted: IdRequest) -> tuple[WordIds, Any]:
        raw = [text.encode() for text in texts]
        offsets = np.cumsum([0, *map(len, raw)])
        data = np.frombuffer(b"".join(raw) or b" ", np.uint8)
        return word_ids(data, offsets[:-1], offsets[1:], self.cut, wanted, self.table, self.long, LONG_FROM), data

    def ids(self, texts: list[str], wanted: IdRequest) -> list[list[int] | None]:
        while True:
            found, data = self.once(texts, wanted)
            words = [*{data[a:b].tobytes() for a, b in zip(found.missing_starts, found.missing_ends, strict=True)}]
            if not words:
                break
            for table, some in (
                (self.table, [w for w in words if len(w) < LONG_FROM]),
                (self.long, [w for w in words if len(w) >= LONG_FROM]),
            ):
                table.add(some, ids_of([w.decode() for w in some]) if some else [])
        ends = np.cumsum(found.lengths).tolist()
        assert set(found.status.tolist()) <= {DONE, ASIDE}
        return [
            None if state == ASIDE else found.ids[end - n : end].tolist()
            for state, end, n in zip(found.status.tolist(), ends, found.lengths.tolist(), strict=True)
        ]


CUTS = [(Known(cut), twin) for cut, twin in kinds()]


@settings(max_examples=examples(150), deadline=None)
@given(TEXTS, st.sampled_from([ALL_CHARS, 1, 5, 30]))
def test_texts_are_cut_as_by_the_twin(texts: list[str], max_chars: int) -> None:
    for known, twin in CUTS:
        wanted = IdRequest(10_000, 10_000, max_chars=max_chars)
        assert known.ids(texts, wanted) == twin.encode([text[:max_chars] for text in texts])


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(1, 6), st.integers(0, 4), st.integers(1, 9))
def test_no_more_ids_than_wanted_and_those_of_as_many_characters_as_that_takes(
    texts: list[str], most: int, beside: int, first_chars: int
) -> None:
    """Read `first_chars` of a text, and four times as many while they have too few ids; the rest does not matter."""
    before, behind = np.array([-1], np.int32), np.array([-2, -3], np.int32)
    for known, twin in CUTS:
        found = known.ids(texts, IdRequest(most, most + beside, first_chars, ALL_CHARS, before, behind))
        for text, ids in zip(texts, found, strict=True):
            n_chars = first_chars
            while True:
                wanted = twin.encode([text[:n_chars]])[0]
                if wanted is None or len(wanted) >= most + beside or n_chars >= len(text):
                    break
                n_chars *= 4
            if wanted is not None:
                assert ids == [-1, *wanted[:most], -2, -3]
            elif ids is not None:  # enough ids stand before what cannot be cut
                assert len(ids) == most + 3


def test_many_texts_have_more_ids_than_there_is_room_for_at_first() -> None:
    known = Known(Cut(" ", "", []))
    texts = ["a b c " * 2000, "a", ""] * 20
    lengths = [len(ids or []) for ids in known.ids(texts, IdRequest(7000, 7000))]
    per_text = sum(len(ids) for ids in ids_of(["a", "b", "c"])) * 2000
    assert lengths == [per_text, len(ids_of(["a"])[0]), 0] * 20


def test_words_that_are_not_known_are_reported_and_their_texts_have_no_ids() -> None:
    known = Known(Cut(" ", ".", ["<s>"]))
    known.table.add([b"one"], [[1]])
    found, data = known.once(["one", "one two. three", "four <s>", "one"], IdRequest(9, 9))
    assert found.status.tolist() == [DONE, MISSING, ASIDE, DONE]
    assert (found.ids.tolist(), found.lengths.tolist()) == ([1, 1], [1, 0, 0, 1])
    told = [data[a:b].tobytes() for a, b in zip(found.missing_starts, found.missing_ends, strict=True)]
    assert told == [b"two", b".", b"three"]


def test_a_table_knows_its_words_and_no_others_and_forgets_those_that_are_not_used() -> None:
    table, rng = WordTable(), random.Random(1)
    words = [*{rng.randbytes(rng.randint(1, 40)) for _ in range(3000)}]
    ids = [[*word[:5]] for word in words]
    table.add(words[:10], ids[:10])
    table.add(words[10:2000], ids[10:2000])
    assert [table.ids_of(word) for word in words] == [*ids[:2000], *([None] * (len(words) - 2000))]
    used = b" ".join(word for word in words[:20] if b" " not in word) + b" "
    known = [word for word in words[:2000] if word in used.split(b" ")]
    spans = np.array([0, 0]), np.array([len(used)] * 2)
    word_ids(np.frombuffer(used, np.uint8), *spans, Cut(" ", "", []), IdRequest(999, 999), table, WordTable(), 100)
    table.forget(len(words))
    assert [word for word in words if table.ids_of(word) is not None] == known
    assert table.n_words == len(known)
    table.forget(0)
    assert table.n_words == 0


def test_an_empty_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="empty string is in every text"):
        Cut(" ", "", [""])
