"""How a language is split into words: at whitespace, or by a segmenter where words are not set apart by spaces.

Chinese is segmented by jieba, Japanese by MeCab with the dictionary unidic-lite; both come with the extra `lang`. A segmenter
sees one line at a time, and of a long line at most PIECE_CHARS: both take hundreds of bytes per character that they see at once,
and jieba's time for characters it does not know grows with their square. Pieces end after a sentence or at a space where they can.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from tamis.errors import optional

SEGMENTED = ("zh", "ja")
PIECE_CHARS = 1000
_REMEMBERED_CHARS = 3_000_000  # a batch; about 7 bytes each
_ENTRY_CHARS = 32  # what remembering a text takes besides, in these
_KNOWN_WORDS = 100_000
# No segmenter has more to say of these than that they are one word; see PIECE_CHARS.
_LONG_RUN = re.compile(rf"(?<![A-Za-z0-9])([A-Za-z0-9]{{{PIECE_CHARS + 1},}})")
_RUN = re.compile(r"[A-Za-z0-9]*")
_LINE_END = re.compile(r"[\n\0]")  # MeCab takes a zero byte for the end of the text
_PIECE_ENDS = "。！？ "


def is_segmented(lang: str) -> bool:
    """Words of this language are not separated by spaces. Regions do not count: zh-TW is zh."""
    return _language(lang) in SEGMENTED


def word_splitter(lang: str) -> Callable[[str], list[str]]:
    """Return a function from text to words. The words of a segmented language exclude pure whitespace."""
    return _splitter(_language(lang))


def _language(lang: str) -> str:
    return re.split("[-_]", lang.lower())[0]


@lru_cache
def _splitter(language: str) -> Callable[[str], list[str]]:
    if language == "zh":
        return _Segmenter(_chinese())
    if language == "ja":
        return _Segmenter(_japanese())
    return str.split


class _Segmenter:
    """Splits texts and remembers the last ones: the filters of a chain ask for the same texts, one filter after the other."""

    def __init__(self, segment: Callable[[str], Iterable[str]]) -> None:
        self._segment = segment
        self._lock = threading.Lock()  # MeCab's taggers are not made for several threads
        self._known: dict[str, str] = {}  # one object per different word: a list of words takes 8 bytes for each
        self._last: dict[str, tuple[str, ...]] = {}
        self._n_chars = 0

    def __call__(self, text: str) -> list[str]:
        with self._lock:
            words = self._last.get(text)
            if words is None:
                words = tuple(self._words(text))
                self._remember(text, words)
            return list(words)

    def _remember(self, text: str, words: tuple[str, ...]) -> None:
        self._last[text] = words
        self._n_chars += len(text) + _ENTRY_CHARS
        while self._n_chars > _REMEMBERED_CHARS:
            oldest = next(iter(self._last))
            del self._last[oldest]
            self._n_chars -= len(oldest) + _ENTRY_CHARS

    def _words(self, text: str) -> Iterator[str]:
        if len(self._known) > _KNOWN_WORDS:
            self._known.clear()
        for number, part in enumerate(_LONG_RUN.split(text)):
            if number % 2:
                yield part
                continue
            for piece in _pieces(part):
                for word in self._segment(piece):
                    if not word.isspace():
                        yield self._known.setdefault(word, word)


def _pieces(text: str) -> Iterator[str]:
    for line in _LINE_END.split(text):
        begin = 0
        while len(line) - begin > PIECE_CHARS:
            limit = begin + PIECE_CHARS
            end = 1 + max(line.rfind(mark, begin, limit) for mark in _PIECE_ENDS)
            if end == 0:
                run = _RUN.match(line, limit)
                end = run.end() if run else limit
            yield line[begin:end]
            begin = end
        if begin < len(line):
            yield line[begin:]


def _chinese() -> Callable[[str], Iterable[str]]:
    with warnings.catch_warnings():
        # jieba's patterns are not raw strings, and it looks for its dictionary with setuptools
        warnings.filterwarnings("ignore", message=".*invalid escape sequence")
        warnings.filterwarnings("ignore", message=".*pkg_resources")
        jieba = optional("jieba", 'lang="zh" (jieba)', "lang")
    # A tokenizer of our own, loaded now: the one that jieba shares may hold words that others added to it, and it reads and
    # writes a file of a fixed name in the folder for temporary files, where any user may have put another.
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    cut: Callable[[str], Iterable[str]] = tokenizer.cut
    return cut


def _japanese() -> Callable[[str], Iterable[str]]:
    mecab, unidic_lite = (optional(name, 'lang="ja" (MeCab)', "lang") for name in ("MeCab", "unidic_lite"))
    # The dictionary is named: MeCab would take another where one is installed, and count other words.
    tagger = mecab.Tagger(f'-r /dev/null -d "{unidic_lite.DICDIR}" -O wakati')

    def segment(piece: str) -> list[str]:
        return str(tagger.parse(piece)).split()

    return segment
