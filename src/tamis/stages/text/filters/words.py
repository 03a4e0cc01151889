"""Word segmentation by language, and the base class of filters that count words.

Words are what `str.split()` gives, but for Chinese and Japanese, which have no spaces: jieba segments Chinese, MeCab
with the dictionary unidic-lite Japanese; both come with the extra `lang`. A segmenter gets one line at a time, and of a
long line at most PIECE_CHARS: both take hundreds of bytes per character of a call, and jieba's time for unknown
characters grows with their square. Pieces end after a sentence or at a space if possible.
"""

from __future__ import annotations

import re
import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from tamis._lazy import pa
from tamis.errors import UsageError, optional
from tamis.stages.text.filters.doc_filter import KernelFilter

SEGMENTED = ("zh", "ja")
PIECE_CHARS = 1000
_CACHE_CHARS = 3_000_000  # a batch; about 7 bytes each
_CACHE_ENTRY_CHARS = 32  # overhead of a cached text
_KNOWN_WORDS = 100_000
# Longer than PIECE_CHARS, and one word for every segmenter.
_LONG_RUN = re.compile(rf"(?<![A-Za-z0-9])([A-Za-z0-9]{{{PIECE_CHARS + 1},}})")
_RUN = re.compile(r"[A-Za-z0-9]*")
_LINE_END = re.compile(r"[\n\0]")  # for MeCab, a zero byte is the end of the text
_PIECE_ENDS = "。！？ "


def is_segmented(lang: str) -> bool:
    """Return True if words of this language are not separated by spaces. The region is ignored: zh-TW is zh."""
    return _language(lang) in SEGMENTED


def word_splitter(lang: str) -> Callable[[str], list[str]]:
    """Return a function from a text to its words. Words of a segmented language exclude pure whitespace."""
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


class WordsFilter(KernelFilter):
    """A filter that counts words, of segmented languages too.

    Subclasses have a parameter `lang`, and compute in `score_words` from a list of words what `score_from` computes
    from the statistics.
    """

    lang: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.lang, str):
            raise UsageError(f"{type(self).__name__}: lang must be a language code such as 'en', got {self.lang!r}")
        if is_segmented(self.lang):
            word_splitter(self.lang)  # report a missing segmenter before the run starts

    def model_check_or_download(self) -> None:
        """Load the segmenter once per machine, before any memory cap is set, so that the workers share it."""
        word_splitter(self.lang)

    @property
    def statistics(self) -> tuple[str, ...]:
        return () if is_segmented(self.lang) else self.compares

    @abstractmethod
    def score_words(self, text: str, words: list[str]) -> float:
        """Score a text by the words of its segmenter."""

    def score_batch(self, texts: pa.Array) -> Any:
        split = word_splitter(self.lang)
        return [self.score_words(text or "", split(text or "")) for text in texts.to_pylist()]


class _Segmenter:
    """Splits texts and caches the last ones, because the filters of a chain split the same texts in turn."""

    def __init__(self, segment: Callable[[str], Iterable[str]]) -> None:
        self._segment = segment
        self._lock = threading.Lock()  # MeCab's taggers are not thread-safe
        self._interned: dict[str, str] = {}  # interned words: a list of words takes 8 bytes for each
        self._cache: dict[str, tuple[str, ...]] = {}
        self._n_chars = 0

    def __call__(self, text: str) -> list[str]:
        with self._lock:
            words = self._cache.get(text)
            if words is None:
                words = tuple(self._words(text))
                self._store(text, words)
            return list(words)

    def _store(self, text: str, words: tuple[str, ...]) -> None:
        self._cache[text] = words
        self._n_chars += len(text) + _CACHE_ENTRY_CHARS
        while self._n_chars > _CACHE_CHARS:
            oldest = next(iter(self._cache))
            del self._cache[oldest]
            self._n_chars -= len(oldest) + _CACHE_ENTRY_CHARS

    def _words(self, text: str) -> Iterator[str]:
        if len(self._interned) > _KNOWN_WORDS:
            self._interned.clear()
        for number, part in enumerate(_LONG_RUN.split(text)):
            if number % 2:
                yield part
                continue
            for piece in _pieces(part):
                for word in self._segment(piece):
                    if not word.isspace():
                        yield self._interned.setdefault(word, word)


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
    # A separate tokenizer, loaded now: jieba's shared one may contain words that other code added, and it reads and
    # writes a file of a fixed name in the folder for temporary files, which any user may have replaced.
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    cut: Callable[[str], Iterable[str]] = tokenizer.cut
    return cut


def _japanese() -> Callable[[str], Iterable[str]]:
    mecab, unidic_lite = (optional(name, 'lang="ja" (MeCab)', "lang") for name in ("MeCab", "unidic_lite"))
    # Without the name of the dictionary MeCab would use any installed one, and count other words.
    tagger = mecab.Tagger(f'-r /dev/null -d "{unidic_lite.DICDIR}" -O wakati')

    def segment(piece: str) -> list[str]:
        return str(tagger.parse(piece)).split()

    return segment
