"""Fold characters for comparison: the letters that each character is folded to, as tables for kernels.

Case, accents, width and compatibility forms do not count (normal form KD of the case-folded character, without
combining marks); letters, digits and the marks of other scripts do, everything else separates words. Invisible
characters (soft hyphen, zero width space and joiners, variation selectors) and combining marks are skipped.

A word weighs WEIGHT_OF_WORD. In scripts without spaces each character is a token of its own: Chinese, Japanese and
Yi characters weigh half a word, those of Thai, Lao, Khmer, Burmese, Tibetan and their neighbours a quarter.

PAGE_OF[code point >> 8] is a page, ENTRIES[page * 256 + (code point & 255)] an entry: see the bits below. Built from
the `unicodedata` of the running Python in 0.1 s, and stored with what was made by it, so that all passes of a run
agree whatever Python continues it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

VERSION = 1
WEIGHT_OF_WORD = 4
SEPARATOR, IGNORED, LETTER, SEVERAL = 0, 1, 2, 3
"""Kinds of entries: the two lowest of the bits above the code point, or above the position in LETTERS."""
KIND_SHIFT, SIZE_SHIFT, N_SHIFT = 21, 23, 25
WORD, HALF, QUARTER = 0, 1, 2
"""Sizes of tokens: part of a word, or a token of its own."""
MOST_LETTERS = 7


def _ranges(text: str) -> list[tuple[int, int]]:
    """Return [first, end) of "2e80-2fff 3005": hexadecimal numbers and inclusive ranges."""
    parts = [part.partition("-") for part in text.split()]
    return [(int(first, 16), int(last or first, 16) + 1) for first, _, last in parts]


# Combining marks that are dropped. Vowel signs of Indic and other scripts are marks, too, and stay.
_MARKS = _ranges("300-36f 483-487 591-5c7 610-61a 64b-65f 670 6d6-6ed 1ab0-1aff 1dc0-1dff 20d0-20ff fe20-fe2f")
_INVISIBLE = _ranges("ad 34f 61c 180e 200b-200f 202a-202e 2060-206f fe00-fe0f feff e0100-e01ef")
_HALVES = _ranges(
    "2e80-2fff 3005-3007 3021-302f 3031-3035 3038-30ff 31a0-31ff 3400-4dbf 4e00-a4cf f900-faff 1aff0-1b2ff 20000-3ffff"
)
_QUARTERS = _ranges("e00-109f 1780-17ff 1950-19df 1a20-1aaf a9e0-a9ff aa60-aadf")
# Blocks whose characters fold to themselves or to nothing: their normal forms are not needed.
_IDEOGRAPHS = _ranges("3400-4dbf 4e00-9fff 20000-3ffff")
_LAST_ASKED = 0x20000
_MARK_CODES = frozenset(code for first, end in _MARKS for code in range(first, end))
_SKIPPED = _MARK_CODES | {code for first, end in _INVISIBLE for code in range(first, end)}


class Folding(NamedTuple):
    """The tables: `ascii` has the entry of each byte below 128, `letters` those of entries of the kind SEVERAL."""

    pages: NDArray[np.uint16]
    entries: NDArray[np.uint32]
    letters: NDArray[np.uint32]

    def ascii(self) -> NDArray[np.uint8]:
        """Return the letter that each ASCII character folds to, 0 for a separator."""
        entries = self.entries[int(self.pages[0]) * 256 :][:128]
        return np.where(entries >> KIND_SHIFT & 3 == LETTER, entries & 127, 0).astype(np.uint8)


def _within(code: int, ranges: list[tuple[int, int]]) -> bool:
    return any(first <= code < end for first, end in ranges)


def _is_letter(c: str) -> bool:
    return c.isalnum() or unicodedata.category(c)[0] == "M"


def _size(code: int) -> int:
    return HALF if _within(code, _HALVES) else QUARTER if _within(code, _QUARTERS) else WORD


def _sizes() -> NDArray[np.int64]:
    """Return `_size` of all code points that are asked for."""
    sizes = np.full(_LAST_ASKED, WORD)
    for size, ranges in ((QUARTER, _QUARTERS), (HALF, _HALVES)):
        for first, end in ranges:
            sizes[first:end] = size
    return sizes


def letters_of(c: str) -> tuple[str, int]:
    """Return the letters that a character folds to and their size; no letters for a separator.

    >>> letters_of("É"), letters_of("ﬁ"), letters_of("-"), letters_of("漢")
    (('e', 0), ('fi', 0), ('', 0), ('漢', 1))
    """
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", c).casefold())
    kept = [d for d in plain if ord(d) not in _MARK_CODES and _is_letter(d)][:MOST_LETTERS]
    return "".join(kept), _size(ord(kept[0])) if kept else WORD


def tokens_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield the tokens of a text and their weights: what the kernels do, for a few words.

    >>> [token for token, _ in tokens_of("Don’t PANIC, 漢字")]
    ['don', 't', 'panic', '漢', '字']
    """
    word = ""
    for c in text:
        if ord(c) in _SKIPPED:
            continue
        kept, size = letters_of(c)
        if kept and size == WORD:
            word += kept
            continue
        if word:
            yield word, WEIGHT_OF_WORD
            word = ""
        yield from ((letter, WEIGHT_OF_WORD >> size) for letter in kept)
    if word:
        yield word, WEIGHT_OF_WORD


@lru_cache(maxsize=1)
def folding() -> Folding:
    """Return the tables of the running Python."""
    entries, sizes = np.zeros(0x110000, np.uint32), _sizes()
    several: list[int] = []
    for first in range(0, _LAST_ASKED, 256):
        if 0xD800 <= first < 0xF900 or _within(first, _IDEOGRAPHS):
            continue
        page = "".join(map(chr, range(first, first + 256)))
        if unicodedata.normalize("NFKD", page) == page == page.casefold():  # each folds to itself or to nothing
            codes = np.array([ord(c) for c in filter(_is_letter, page)], np.int64)
            entries[codes] = codes | LETTER << KIND_SHIFT | sizes[codes] << SIZE_SHIFT
            continue
        for c in page:
            kept, size = letters_of(c) if _is_letter(c) or unicodedata.decomposition(c) else ("", WORD)
            if len(kept) == 1:
                entries[ord(c)] = ord(kept) | LETTER << KIND_SHIFT | size << SIZE_SHIFT
            elif kept:
                entries[ord(c)] = len(several) | SEVERAL << KIND_SHIFT | size << SIZE_SHIFT | len(kept) << N_SHIFT
                several += map(ord, kept)
    _add_ideographs(entries)
    entries[list(_SKIPPED)] = IGNORED << KIND_SHIFT
    numbers: dict[bytes, int] = {}
    pages = [numbers.setdefault(page.tobytes(), len(numbers)) for page in entries.reshape(-1, 256)]
    letters = np.array(several or [0], np.uint32)
    return Folding(np.array(pages, np.uint16), np.frombuffer(b"".join(numbers), np.uint32), letters)


def _add_ideographs(entries: NDArray[np.uint32]) -> None:
    for first, end in _IDEOGRAPHS:
        codes = np.flatnonzero([chr(code).isalnum() for code in range(first, end)]) + first
        entries[codes] = codes | LETTER << KIND_SHIFT | HALF << SIZE_SHIFT
    for code in range(0x2F800, 0x2FA20):  # compatibility ideographs
        kept, _ = letters_of(chr(code))
        if len(kept) == 1:
            entries[code] = ord(kept) | LETTER << KIND_SHIFT | HALF << SIZE_SHIFT


def stored(tables: Folding) -> dict[str, Any]:
    """Return the tables by name, to be saved; `restored` takes them back."""
    return tables._asdict()


def restored(arrays: dict[str, Any]) -> Folding:
    """Return stored tables, checked: kernels read them without looking. Raise ValueError where they are damaged."""
    pages, entries, letters = (np.ascontiguousarray(arrays[name]) for name in Folding._fields)
    if pages.dtype != np.uint16 or entries.dtype != np.uint32 or letters.dtype != np.uint32:
        raise ValueError("tables of other types")
    several = entries[entries >> KIND_SHIFT & 3 == SEVERAL]
    ends = (several & ((1 << KIND_SHIFT) - 1)) + (several >> N_SHIFT)
    if pages.size != 0x1100 or 256 * (int(pages.max()) + 1) > entries.size or (ends > letters.size).any():
        raise ValueError("tables that do not fit together")
    return Folding(pages, entries, letters)
