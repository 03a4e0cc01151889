"""How a language is split into words: whitespace, or a segmenter for Chinese and Japanese behind the `lang` extra."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tamis.errors import MissingExtra

SEGMENTED = ("zh", "ja")


def is_segmented(lang: str) -> bool:
    """Words of this language are not separated by spaces."""
    return lang.lower() in SEGMENTED


@lru_cache
def word_splitter(lang: str) -> Callable[[str], list[str]]:
    """A function from text to words. The words of a segmented language exclude pure whitespace."""
    if lang.lower() == "zh":
        return _chinese()
    if lang.lower() == "ja":
        return _japanese()
    return str.split


def _chinese() -> Callable[[str], list[str]]:
    try:
        import jieba  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtra('lang="zh" (jieba)', "lang") from None
    jieba.setLogLevel(60)

    def split(text: str) -> list[str]:
        return [word for word in jieba.cut(text) if not word.isspace()]

    return split


def _japanese() -> Callable[[str], list[str]]:
    try:
        import MeCab  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtra('lang="ja" (MeCab)', "lang") from None
    tagger = MeCab.Tagger("-Owakati")

    def split(text: str) -> list[str]:
        return str(tagger.parse(text)).split()

    return split
