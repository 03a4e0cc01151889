"""N-grams of normalised words against the twin, which reads texts as strings; the filter; comparing passages."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.overlap.folding import WEIGHT_OF_WORD, folding, letters_of, restored, stored, tokens_of
from tamis.kernels.overlap.ngrams import FULL, SHORT, Scanner, add_all, match_all, new_filter
from tests.reference.overlap_twin import twin
from tests.support.limits import examples

PARTS = [
    "the",
    "The",
    "CAFÉ",
    "cafe\u0301",
    "ﬁne",
    "fine",
    "ß",
    "ss",
    "x1",
    "12",
    "½",
    "don't",
    "naïve",
    "I\u0307",
    "İ",
]
PARTS += [
    "漢",
    "字漢",
    "かな",
    "が",
    "か\u3099",
    "ー",
    "กขค",
    "ไทย",
    "हिन्दी",
    "한국",
    "\u1112\u1161\u11ab",
    "မြန်မာ",
    "𝔘",
    "😀",
    "e\u200b",
]
PARTS += [
    " ",
    "  ",
    "\n",
    ", ",
    "-",
    "_",
    ".",
    "\u00a0",
    "\u3000",
    "\u00ad",
    "\ufeff",
    "\0",
    "�",
    "、",
    "»",
    "\u0301",
    "\u20dd",
]
PARTS += [
    "abcdefgh",
    "Abcdefghi",
    "x" * 17,
    "Y" * 63,
    "z" * 64,
    "12 words of ASCII in a row, or so: They go by 64 bytes; ",
]
TEXTS = st.lists(st.sampled_from(PARTS) | st.characters(codec="utf-8"), max_size=60).map("".join)


def rows_of(texts: list[str], after: bytes = b" ") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    raw = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in raw], dtype=np.int64)
    return np.frombuffer(b"".join(raw) + after, np.uint8), ends - np.array([len(t) for t in raw], np.int64), ends


def scan(
    texts: list[str], words: int, short: int = 0, room: int = 1 << 14, after: bytes = b" "
) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Return (row, first token, token after the last, kind, hash) of all windows, and the totals of the rows.

    `after`: bytes that follow the texts. ASCII is read in blocks where these reach beyond it.
    """
    totals = np.zeros((len(texts), 2), np.int64)
    scanner = Scanner(folding(), words, short, room=room)
    found = []
    for w in scanner.scan(*rows_of(texts, after), totals):
        for hashed, (row, _, _, first, end, kind) in zip(w.hashes.tolist(), w.fields.tolist(), strict=True):
            found.append((row, first, end, kind, hashed))
    return sorted(found), totals


@settings(max_examples=examples(300), deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=3), words=st.integers(1, 6), short=st.integers(0, 6))
def test_windows_are_those_of_the_twin(texts: list[str], words: int, short: int) -> None:
    short = min(short, words)
    found, totals = scan(texts, words, short)
    by_block, block_totals = scan(texts, words, short, after=b"letters" * 11)
    assert (by_block, block_totals.tolist()) == (found, totals.tolist())
    expected, hashes = [], {}
    for row, text in enumerate(texts):
        tokens = twin.tokens(text)
        assert totals[row].tolist() == [len(tokens), sum(weight for _, weight in tokens)]
        assert list(tokens_of(text)) == tokens
        for kind, n in ((FULL, words), (SHORT, short)):
            for first, gram in twin.windows(tokens, n * WEIGHT_OF_WORD) if n else ():
                expected.append((row, first, first + len(gram), kind, gram))
    assert [f[:4] for f in found] == sorted(e[:4] for e in expected)
    # Equal n-grams have equal hashes, and different ones different ones.
    for (_, _, _, kind, hashed), (*_, gram) in zip(found, sorted(expected), strict=True):
        assert hashes.setdefault((kind, gram), hashed) == hashed
    assert len(set(hashes.values())) == len(hashes)


@settings(max_examples=examples(100), deadline=None)
@given(text=TEXTS)
def test_bytes_of_a_window_hold_its_words(text: str) -> None:
    data, starts, ends = rows_of([text])
    totals = np.zeros((1, 2), np.int64)
    tokens = [token for token, _ in twin.tokens(text)]
    for w in Scanner(folding(), 2).scan(data, starts, ends, totals):
        for _, start, end, first, last, _ in w.fields.tolist():
            passage = bytes(data[start:end]).decode()
            # A character may stand for several tokens: the passage has whole characters.
            assert " ".join(tokens[first:last]) in " ".join(token for token, _ in twin.tokens(passage))


def test_a_small_room_finds_the_same() -> None:
    text = "one two three four five six, seven! " * 400 + "漢字" * 300
    small, large = (scan([text, "", text], 13, 8, room=room) for room in (1000, 1 << 14))
    assert small[0] == large[0]
    assert small[1].tolist() == large[1].tolist()


def test_every_character_stands_for_what_the_twin_says() -> None:
    tables = folding()
    assert restored(stored(tables))._fields == tables._fields
    for code in [*range(0x3100), *range(0xA000, 0xD800, 7), *range(0xF900, 0x1F000, 3), *range(0x20000, 0x32000, 501)]:
        c = chr(code)
        kept, weight = twin.LETTERS[c]
        _, totals = scan([c], 1)
        alone = len(kept) if weight > 0 else int(bool(kept))
        assert totals[0].tolist() == [alone, alone * (weight or WEIGHT_OF_WORD)], hex(code)
        if weight >= 0:
            assert letters_of(c)[0] == kept, hex(code)


def test_damaged_tables_are_refused() -> None:
    tables = stored(folding())
    with pytest.raises(ValueError, match="fit together"):
        restored({**tables, "letters": tables["letters"][:10]})
    with pytest.raises(ValueError, match="other types"):
        restored({**tables, "pages": tables["pages"].astype(np.int64)})


def test_the_filter_misses_nothing_and_is_small() -> None:
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, 1 << 64, 200_000, np.uint64)
    known = new_filter(len(hashes))
    add_all(hashes, known)
    assert known.nbytes <= 2 * len(hashes)
    texts = ["".join(f"w{i} " for i in rng.integers(0, 10_000, 500).tolist()) for _ in range(100)]
    data, starts, ends = rows_of(texts)
    totals = np.zeros((100, 2), np.int64)
    n_by_chance = sum(len(w.hashes) for w in Scanner(folding(), 13, 0, known).scan(data, starts, ends, totals))
    assert n_by_chance < 0.004 * totals[:, 0].sum()
    every = np.concatenate([w.hashes for w in Scanner(folding(), 13).scan(data, starts, ends, totals)])
    add_all(every, known)
    passed = np.concatenate([w.hashes for w in Scanner(folding(), 13, 0, known).scan(data, starts, ends, totals)])
    assert sorted(passed.tolist()) == sorted(every.tolist())


def same(text: str, item: str, whole: bool = False) -> int:
    data, starts, ends = rows_of([text])
    items, firsts, lasts = rows_of([item])
    return int(match_all(folding(), data, starts, ends, items, firsts, lasts, np.array([whole]))[0])


@settings(max_examples=examples(300), deadline=None)
@given(text=TEXTS, item=TEXTS)
def test_passages_are_equal_where_their_tokens_are(text: str, item: str) -> None:
    one, two = ([token for token, _ in twin.tokens(t)] for t in (text, item))
    assert (same(text, item) >= 0) == (two[: len(one)] == one)
    assert (same(text, item, whole=True) >= 0) == (one[: len(two)] == two)


def test_a_passage_ends_with_a_word() -> None:
    assert same("a b", "a bc d") == -1
    assert same("a b", "A, b c") == 4
    assert same("a bc d", "a b", whole=True) == -1
    assert same("A: B! c", "a b", whole=True) == 4
    assert same(unicodedata.normalize("NFD", "Ünïcode ﬁt"), "unicode FIT") == 11
