r"""The class of every code point in the regular expressions of `tokenizers`, as the library itself reports it.

So words end where the library ends them, whatever version of Unicode it was built with. One call labels the planes that
have characters (70,000 runs of equal class would be too many for one call each, so runs are cut first and labelled by
their first characters): 0.2 s, once per process that loads a tokenizer. Code points of the other planes, which have
neither letters nor digits, count as punctuation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tamis._lazy import np
from tamis.errors import optional

if TYPE_CHECKING:
    from tamis.kernels.tokens.byte_bpe import CharClasses

_PLANES = ((0, 0xD800), (0xE000, 0x34000), (0xE0000, 0xE1000))  # where anything is assigned; no surrogates
_N_PAGES = 0x1100
FEATURE = "a tokenizer"


@lru_cache(maxsize=1)
def library_classes() -> tuple[CharClasses, bool]:
    """Return the flags of all code points (_pretokens.py), and whether a long s is a kind of s in contractions."""
    from tamis.kernels.tokens import _pretokens as flags_of

    library = optional("tokenizers", FEATURE, "tokens")
    kinds = [
        (r"\p{Lu}", flags_of.LETTER | flags_of.UPPER),
        (r"\p{Lt}", flags_of.LETTER | flags_of.UPPER),
        (r"\p{Ll}", flags_of.LETTER | flags_of.LOWER),
        (r"\p{Lm}", flags_of.LETTER | flags_of.BOTH),
        (r"\p{Lo}", flags_of.LETTER | flags_of.BOTH),
        (r"\p{L}", flags_of.LETTER),
        (r"\p{N}", flags_of.NUMBER),
        (r"\s", flags_of.SPACE),
        (r"\p{M}", flags_of.BOTH | flags_of.OTHER),
    ]
    points = np.concatenate([np.arange(begin, end) for begin, end in _PLANES])
    text = points.astype("<u4").tobytes().decode("utf-32-le")
    pieces = _split(library, "|".join(f"{kind}+" for kind, _ in kinds), "isolated", text)
    starts = np.array([begin for begin, _ in pieces], np.int64)
    of_piece = np.full(len(pieces), flags_of.OTHER, np.uint8)
    # A comma between two characters, so that none of them is part of a longer match.
    firsts = ",".join(text[int(begin)] for begin in starts)
    rest = np.ones(len(pieces), bool)
    for kind, value in kinds:
        is_kind = np.ones(2 * len(pieces) - 1, bool)
        for begin, end in _split(library, kind, "removed", firsts):
            is_kind[begin:end] = False
        chosen = rest & is_kind[::2]
        of_piece[chosen] = value
        rest &= ~chosen
    flags = np.full(_N_PAGES << 8, flags_of.OTHER, np.uint8)
    flags[points] = np.repeat(of_piece, np.diff(np.append(starts, len(points))))
    flags[[10, 13]] |= flags_of.NEWLINE
    long_s = "'\u017f" in [part for part, _ in _pieces(library, "(?i:'s)", "isolated", "x'\u017fx")]
    return paged(flags), long_s


def with_marks(classes: CharClasses) -> CharClasses:
    """Return classes in which marks are letters."""
    from tamis.kernels.tokens import _pretokens as flags_of

    mark = flags_of.BOTH | flags_of.OTHER
    flags = np.where(classes.flags & mark == mark, flags_of.LETTER | flags_of.BOTH, classes.flags)
    return classes._replace(flags=flags.astype(np.uint8))


@lru_cache(maxsize=1)
def may_not_be_nfc() -> CharClasses:
    """Return which code points may change, or change others, under NFC: texts with one are normalized by the library.

    Those have the flag 1. Marks that at most change places with another mark next to them have the flag 2. By the
    tables of the running Python; unassigned code points count: the version of the library does not matter.
    """
    import unicodedata

    flags = np.zeros(_N_PAGES << 8, np.uint8)
    for code in range(0x80, 0x110000):
        char = chr(code)
        if unicodedata.category(char) == "Cn":
            flags[code] = 1
            continue
        if unicodedata.combining(char):
            flags[code] |= 2
        parts = unicodedata.decomposition(char)
        if parts and parts[0] != "<":
            *_, last = parts.split()
            flags[int(last, 16)] |= 1
            if unicodedata.normalize("NFC", char) != char:
                flags[code] |= 1
    flags[0x1161:0x1176] = flags[0x11A8:0x11C3] = 1  # parts of Hangul syllables that follow others
    # There is room for 256 different pages: of the rarer planes a page counts as a whole, but for those of emoji.
    rare = flags.reshape(_N_PAGES, 256)[0x100:]
    is_whole = np.asarray(rare.any(axis=1))
    is_whole[0xF1:0xFB] = False
    rare[is_whole] = 1
    return paged(flags)


def paged(flags: Any) -> CharClasses:
    """Return a table of pages from the flags of all code points."""
    from tamis.kernels.tokens.byte_bpe import CharClasses

    numbers: dict[bytes, int] = {}
    pages = np.array(
        [numbers.setdefault(flags[k << 8 : (k + 1) << 8].tobytes(), len(numbers)) for k in range(_N_PAGES)], np.int64
    )
    assert pages.max() < 256, "more different pages of 256 characters than there are numbers for"
    return CharClasses(pages.astype(np.uint8), np.frombuffer(b"".join(numbers), np.uint8))


def _split(library: Any, expression: str, behaviour: str, text: str) -> list[tuple[int, int]]:
    return [span for _, span in _pieces(library, expression, behaviour, text)]


def _pieces(library: Any, expression: str, behaviour: str, text: str) -> list[tuple[str, tuple[int, int]]]:
    split = library.pre_tokenizers.Split(library.Regex(expression), behaviour)
    return list(split.pre_tokenize_str(text))
