"""What Python says about every code point, as a two-stage table that kernels can read.

PAGE_OF[code point >> 8] is a page, FLAGS[page * 256 + (code point & 255)] the flags below: one byte per page number
and two per entry of some 150 different pages, about 80 kB. The table is made at import from the `str` methods of the
running Python, so kernels and plain Python always agree, whatever Unicode version that Python has. That takes 150 ms,
so packages bring the table of the Python they were built with, and those of others are kept in the user's own folder.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language.intrinsics import at
from tamis.kernels.language.jit import helper
from tamis.kernels.loading import cache
from tamis.kernels.loading.library import BUILT

SPACE, ALPHA, DECIMAL, DIGIT, NUMERIC, ALNUM = 1, 2, 4, 8, 16, 32
UPPER, LOWER, BREAK = 64, 128, 256
BULLET, TERMINAL, SYMBOL, ANGLE, ELLIPSIS = 512, 1024, 2048, 4096, 8192

# Lists of the published filters. BULLET: the original's BulletsFilter. TERMINAL: the sentence-final marks that FineWeb
# counts. SYMBOL: a word of nothing but these (or TERMINAL) is not counted as a word by datatrove's Gopher rules.
BULLETS = "•‣⁃⁌⁍∙○●◘◦⦾⦿"
LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
_TERMINAL_RANGES = (
    "21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 166e 1735-1736 17d4-17d6 "
    "17d9-17da 1803 1809 1944-1945 1aa8-1aab 1b5a-1b5b 1b5e-1b5f 1b7d-1b7e 1c3b-1c3c 1c7e-1c7f 203c-203d 2047-2049 "
    "2e2e 2e3c 2e53-2e54 3002 a4ff a60e-a60f a6f3 a6f7 a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb "
    "fe52 fe56-fe57 ff01 ff0e ff1f ff61 10a56-10a57 10f55-10f59 10f86-10f89 11047-11048 110be-110c1 11141-11143 "
    "111c5-111c6 111cd 111de-111df 11238-11239 1123b-1123c 112a9 1144b-1144c 115c2-115c3 115c9-115d7 11641-11642 "
    "1173c-1173e 11944 11946 11a42-11a43 11a9b-11a9c 11c41-11c42 11ef7-11ef8 11f43-11f44 16a6e-16a6f 16af5 "
    "16b37-16b38 16b44 16e98 1bc9f 1da88"
)
_SYMBOL_RANGES = (
    "0-8 b-1f 21-2f 3a-40 5b-60 7b-9f ab b4 bb 2013-2014 2019 201c-201e 2026 2236 2501 25ba 3001-3002 3008-300b "
    "300c-300d 3010-3011 ff01 ff05 ff08-ff09 ff0c ff0e ff11 ff1a-ff1b ff1f ff5e"
)


def ranges(text: str) -> list[int]:
    """Code points of "21 2e-30": hexadecimal numbers and inclusive ranges."""
    points: list[int] = []
    for part in text.split():
        first, _, last = part.partition("-")
        points += range(int(first, 16), int(last or first, 16) + 1)
    return points


TERMINAL_MARKS = "".join(map(chr, ranges(_TERMINAL_RANGES)))
SYMBOLS = "".join(map(chr, ranges(_SYMBOL_RANGES)))
_NUMBERS = ((NUMERIC, str.isnumeric), (DIGIT, str.isdigit), (DECIMAL, str.isdecimal))  # each a part of the one before
_LETTERS = ((ALPHA, str.isalpha), (ALNUM, str.isalnum))
_CASES = ((UPPER, str.isupper), (LOWER, str.islower))
_LISTS = (
    (BREAK, LINE_BREAKS),
    (BULLET, BULLETS),
    (TERMINAL, TERMINAL_MARKS),
    (SYMBOL, SYMBOLS),
    (ANGLE, "⟨⟩"),
    (ELLIPSIS, "…"),
)
_WORD, _SPACE = re.compile(r"\w"), re.compile(r"\s")


def build() -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Return (PAGE_OF, FLAGS) of the running Python."""
    page_of = np.zeros(0x1100, np.uint8)
    numbers: dict[bytes, int] = {bytes(512): 0}
    everything = np.arange(0x110000, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    listed = {ord(point) >> 8 for _, points in _LISTS for point in points}
    for page in range(0x1100):
        flags = _flags_of_methods(everything[page << 8 : (page + 1) << 8])
        for flag, points in _LISTS if page in listed else ():
            flags[[ord(point) & 255 for point in points if ord(point) >> 8 == page]] |= np.uint16(flag)
        page_of[page] = numbers.setdefault(flags.tobytes(), len(numbers))
    return page_of, np.frombuffer(b"".join(numbers), np.uint16)


def _flags_of_methods(chars: str) -> NDArray[np.uint16]:
    """Return the flags that methods of str give to the 256 characters of a page."""
    letters, words = chars.isalpha(), _WORD.search(chars) is not None
    # Most pages hold nothing that counts, or only uncased letters; those are not asked character by character.
    cased = chars.isupper() or chars.islower() or chars.swapcase() != chars or (words and not letters)
    flags = np.zeros(256, np.uint16)
    if _SPACE.search(chars):
        _mark(flags, SPACE, [c.isspace() for c in chars])
    for flag, method in _LETTERS if words else ():
        _mark(flags, flag, letters or [method(c) for c in chars])
    for flag, method in _NUMBERS if words else ():
        found = [method(c) for c in chars]
        _mark(flags, flag, found)
        if True not in found:
            break
    for flag, method in _CASES if cased else ():
        _mark(flags, flag, [method(c) for c in chars])
    return flags


def _mark(flags: NDArray[np.uint16], flag: int, found: bool | list[bool]) -> None:
    flags[np.broadcast_to(found, 256)] |= np.uint16(flag)


def table_name() -> str:
    """Return the name of the table for the running Python, which changes whenever this file does."""
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return f"unicode-{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}-{source}"


def kept(folders: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.uint16]] | None:
    """Load a previously built table from one of these folders."""
    for folder in folders:
        try:
            data = (folder / table_name()).read_bytes()
        except OSError:
            continue
        page_of, flags = np.frombuffer(data[:0x1100], np.uint8), np.frombuffer(data[0x1100 : len(data) & ~1], np.uint16)
        if page_of.size == 0x1100 and flags.size == 256 * (int(page_of.max()) + 1):
            return page_of, flags
    return None


def keep(folder: Path, page_of: NDArray[np.uint8], flags: NDArray[np.uint16]) -> None:
    cache.keep(folder / table_name(), page_of.tobytes() + flags.tobytes())


def _table() -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    folder = cache.folder("tables")
    stored = kept([BUILT] if folder is None else [BUILT, folder])
    if stored is not None:
        return stored
    table = build()
    with contextlib.suppress(OSError):  # a folder that cannot be used costs time only
        if (own := cache.new_folder("tables")) is not None:
            keep(own, *table)
    return table


PAGE_OF, FLAGS = _table()
PAGE_OF.flags.writeable = False


@helper
def decode(buf, p, e):
    """Return (code point, position after it) at p < e. Malformed input reads as something, inside the bounds."""
    c = np.int64(at(buf, p))
    if c < 0x80:
        return c, p + 1
    if c < 0xE0:
        if p + 2 > e:
            return np.int64(0xFFFD), e
        return (c & 31) << 6 | (np.int64(at(buf, p + 1)) & 63), p + 2
    if c < 0xF0:
        if p + 3 > e:
            return np.int64(0xFFFD), e
        return (c & 15) << 12 | (np.int64(at(buf, p + 1)) & 63) << 6 | (np.int64(at(buf, p + 2)) & 63), p + 3
    if p + 4 > e:
        return np.int64(0xFFFD), e
    high = (c & 7) << 18 | (np.int64(at(buf, p + 1)) & 63) << 12
    return min(high | (np.int64(at(buf, p + 2)) & 63) << 6 | (np.int64(at(buf, p + 3)) & 63), 0x10FFFF), p + 4


@helper
def flags_of(pages, flags, code):
    return np.int64(at(flags, (np.int64(at(pages, code >> 8)) << 8) | (code & 255)))


@helper
def back(buf, s, p):
    """Return the position at which the character that ends at p > s begins."""
    p -= 1
    while p > s and at(buf, p) & 0xC0 == 0x80:
        p -= 1
    return p


@helper
def first_word_byte(buf, s, e, pages, flags):
    """Return the position of the first character of buf[s:e) that is no whitespace, or e."""
    while s < e:
        c = at(buf, s)
        if 32 < c < 128:
            return s
        code, after = decode(buf, s, e)
        if flags_of(pages, flags, code) & SPACE == 0:
            return s
        s = after
    return e


@helper
def after_last_word_byte(buf, s, e, pages, flags):
    """Return the position after the last character of buf[s:e) that is no whitespace, or s."""
    while e > s:
        c = at(buf, e - 1)
        if 32 < c < 128:
            return e
        begin = back(buf, s, e)
        code, _ = decode(buf, begin, e)
        if flags_of(pages, flags, code) & SPACE == 0:
            return e
        e = begin
    return s


def main() -> int:
    """Store the table of the running Python in the folder of the first argument: a step of building a package."""
    keep(Path(sys.argv[1]), *build())
    return 0
