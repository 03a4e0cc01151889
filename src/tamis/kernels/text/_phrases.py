"""Fixed phrases that the boilerplate rules look for, found in any case as `phrase in text.lower()` finds them.

Per 64 bytes some 20 vector comparisons find the rarest two or three letters of each phrase; only there bytes are
compared. Of all characters only the Kelvin sign becomes an ASCII letter (k) in lower case in a way that can complete
a phrase.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, lowest_bit, mask_eq, pointer
from tamis.kernels.language.jit import helper
from tamis.kernels.text._blocks import ONE, ZERO, block_at, valid_mask

# C4_POLICY: the six of C4. POLICY: those and what the original adds; of its three whole sentences the first words.
C4_POLICY, POLICY, LOREM, JAVASCRIPT = 1, 2, 4, 8
_BOTH = C4_POLICY | POLICY
# anchor letter -> (position of the anchor, phrase, meaning)
PHRASES = {
    "v": (
        (3, "privacy policy", _BOTH),
        (3, "privacy overview", POLICY),
        (3, "privacy & cookies policy", POLICY),
        (3, "privacy and cookies policy", POLICY),
        (2, "javascript", JAVASCRIPT),
    ),
    "c": (
        (0, "cookie policy", _BOTH),
        (5, "uses cookies", _BOTH),
        (7, "use of cookies", _BOTH),
        (4, "use cookies", _BOTH),
        (10, "necessary cookies are absolutely essential", POLICY),
        (4, "any cookies that may not be particularly necessary", POLICY),
        (58, "if you continue to browse this site without changing your cookie settings", POLICY),
    ),
    "f": ((7, "terms of use", _BOTH),),
    "p": ((7, "lorem ipsum", LOREM),),
}
_FLAT = [(ord(letter), *entry) for letter, entries in PHRASES.items() for entry in entries]
_LETTER = np.array([entry[0] for entry in _FLAT], np.int64)
_ANCHOR = np.array([entry[1] for entry in _FLAT], np.int64)
_MEANING = np.array([entry[3] for entry in _FLAT], np.int64)
_TEXT = np.frombuffer("".join(entry[2] for entry in _FLAT).encode(), np.uint8)
_FROM = np.cumsum([0, *(len(entry[2]) for entry in _FLAT)]).astype(np.int64)
_N_PHRASES = len(_FLAT)


@helper
def _same(source, p, e, text, t, t_end):
    """Return True if source[p:e) begins with the lower-case text[t:t_end), ignoring case."""
    while t < t_end:
        if p >= e:
            return False
        c = at(source, p)
        if c - 65 < 26 and c >= 65:
            c |= 32
        byte = at(text, t)
        if c == byte:
            p += 1
        elif byte == 107 and c == 0xE2 and p + 3 <= e and at(source, p + 1) == 0x84 and at(source, p + 2) == 0xAA:
            p += 3
        else:
            return False
        t += 1
    return True


@helper
def _meaning_at(source, s, e, q):
    letter = np.int64(at(source, q)) | 32
    text = pointer(_TEXT)
    meaning = 0
    for k in range(_N_PHRASES):
        begin = q - _ANCHOR[k]
        if _LETTER[k] == letter and begin >= s and _same(source, begin, e, text, _FROM[k], _FROM[k + 1]):
            meaning |= _MEANING[k]
    return meaning


@helper
def _either(block, i, letter):
    return mask_eq(block, i, letter) | mask_eq(block, i, letter - 32)


@helper
def phrase_flags(source, size, s, e, pad):
    """Return flags for the kinds of phrases that source[s:e) contains."""
    meanings = 0
    p = s
    while p < e:
        block, i = block_at(source, size, p, e, pad)
        stops = _either(block, i, 118) & _either(block, i + 1, 97)
        stops |= _either(block, i, 99) & _either(block, i + 1, 111) & _either(block, i + 2, 111)
        stops |= _either(block, i, 112) & _either(block, i + 1, 115) & _either(block, i + 2, 117)
        stops |= _either(block, i, 102) & mask_eq(block, i + 1, 32) & _either(block, i + 2, 117)
        stops &= valid_mask(p, e)
        while stops != ZERO:
            meanings |= _meaning_at(source, s, e, p + lowest_bit(stops))
            stops &= stops - ONE
        p += 64
    return meanings
