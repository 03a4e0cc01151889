r"""Slow twin of kernels/tokens/byte_bpe.py: published expressions over classes of characters, and merges one by one.

A text becomes a string with one letter for the class of each character; the expressions are those of patterns.py with
these letters in place of \\p{...}. Contractions need the characters themselves, so they are looked at apart.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache

# Classes: U capital, l small, B letter without case, M mark, N number, " " space, w other white space, r line break,
# "/" slash, o anything else.
_LETTER, _OTHER, _WHITE, _LEAD = "[UlB]", "[Mo/]", "[ wr]", "[^rUlBN]"
_CAPITALS, _SMALL = "[UBM]", "[lBM]"
_ENDS = rf"{_WHITE}*r+|{_WHITE}+(?![^ wr])|{_WHITE}+"
_CASED = f"{_LEAD}?{_CAPITALS}*{_SMALL}+|{_LEAD}?{_CAPITALS}+{_SMALL}*"
GPT2 = rf" ?{_LETTER}+| ?N+| ?{_OTHER}+|{_WHITE}+(?![^ wr])|{_WHITE}+"
DIGITS_APART = rf" ?{_LETTER}+|N| ?{_OTHER}+|{_WHITE}+(?![^ wrN])|{_WHITE}+"
CL100K = rf"{_LEAD}?{_LETTER}+|N{{1,3}}| ?{_OTHER}+r*|{_ENDS}"
TIKTOKEN = rf"{_LEAD}?{_LETTER}+|N{{1,3}}| ?{_OTHER}+r*|{_WHITE}+\Z|{_ENDS}"
QWEN2 = rf"{_LEAD}?{_LETTER}+|N| ?{_OTHER}+r*|{_ENDS}"
QWEN35 = rf"{_LEAD}?[UlBM]+|N| ?[o/]+r*|{_ENDS}"
O200K = rf"(?:{_CASED})|N{{1,3}}| ?{_OTHER}+[r/]*|{_ENDS}"
TEKKEN = rf"(?:{_CASED})|N| ?{_OTHER}+[r/]*|{_ENDS}"
_IS_WORD = re.compile(_CASED).fullmatch  # a contraction may follow
_CONTRACTION = r"'(?:[sdmt]|ll|ve|re)"
FIRST = re.compile(_CONTRACTION), re.compile(_CONTRACTION.replace("[sd", "[s\u017fd"), re.IGNORECASE)
KINDS: dict[str, tuple[str, re.Pattern[str] | None, re.Pattern[str] | None]] = {
    "GPT-2": (GPT2, FIRST[0], None),
    "digits apart, GPT-2": (DIGITS_APART, FIRST[0], None),
    "cl100k": (CL100K, FIRST[1], None),
    "cl100k of tiktoken": (TIKTOKEN, FIRST[1], None),
    "Qwen 2": (QWEN2, FIRST[1], None),
    "Qwen 3.5": (QWEN35, FIRST[1], None),
    "o200k": (O200K, None, FIRST[1]),
    "Tekken": (TEKKEN, None, None),
}


@cache
def class_of(char: str) -> str:
    """Return the class of a character by the tables of the running Python."""
    if char in "\r\n":
        return "r"
    if char == " ":
        return " "
    if char in "\t\v\f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" or "\u2000" <= char <= "\u200a":
        return "w"
    if char == "/":
        return "/"
    category = unicodedata.category(char)
    return {"Lu": "U", "Lt": "U", "Ll": "l", "Lm": "B", "Lo": "B"}.get(
        category, {"N": "N", "M": "M"}.get(category[0], "o")
    )


def words(text: str, kind: str) -> list[str]:
    """Cut a text as the expression of this name does."""
    classes = "".join(map(class_of, text))
    expression, before, after = KINDS[kind]
    match = re.compile(expression).match
    found, p = [], 0
    while p < len(text):
        own = before.match(text, p) if before is not None else None
        if own is not None:
            end = own.end()
        else:
            hit = match(classes, p)
            assert hit is not None
            assert hit.end() > p
            end = hit.end()
            if after is not None and _IS_WORD(classes[p:end]):
                suffix = after.match(text, end)
                end = suffix.end() if suffix is not None else end
        found.append(text[p:end])
        p = end
    return found


def merge(word: bytes, byte_ids: Sequence[int], ranks: Mapping[tuple[int, int], tuple[int, int]]) -> list[int]:
    """Merge the pair of lowest rank, of several the leftmost, until there is none; `ranks`: (rank, merged id)."""
    ids = [byte_ids[byte] for byte in word]
    while True:
        pairs = [(ranks[pair][0], i) for i, pair in enumerate(itertools.pairwise(ids)) if pair in ranks]
        if not pairs:
            return ids
        _, i = min(pairs)
        ids[i : i + 2] = [ranks[ids[i], ids[i + 1]][1]]


def encode(
    text: str,
    kind: str,
    byte_ids: Sequence[int],
    ranks: Mapping[tuple[int, int], tuple[int, int]],
    whole: Callable[[bytes], int | None] = lambda word: None,
) -> list[int]:
    """Return the ids of a text; `whole`: the id of a word that is taken as it is."""
    ids: list[int] = []
    for word in words(text, kind):
        own = whole(word.encode())
        ids += merge(word.encode(), byte_ids, ranks) if own is None else [own]
    return ids
