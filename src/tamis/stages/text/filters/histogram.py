"""HistogramFilter: keeps texts that consist of the characters of their language, a cheap check of a language label.

NeMo Curator downloads character lists counted from a web corpus. Here a built-in table replaces them: the letters of
each language's alphabet (or the blocks of its script), digits, punctuation and spaces. Like counted lists, it cannot
distinguish languages with the same letters.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tamis import _deep_paths
from tamis._lazy import np
from tamis.errors import UsageError
from tamis.stages.fingerprints import of_file
from tamis.stages.text.filters.doc_filter import DocumentFilter, is_number

# Letters other than a-z of languages in Latin script (lower case; upper case is added).
LATIN = {
    "af": "áèéêëîïôöûü",
    "az": "çəğıiöşü",
    "bs": "čćđšž",
    "ca": "àçèéíïòóúü·",
    "cs": "áčďéěíňóřšťúůýž",
    "cy": "âêîôûŵŷáéëï",
    "da": "æøåé",
    "de": "äöüß",
    "en": "éèêëïôñç",
    "es": "áéíñóúü",
    "et": "äõöüšž",
    "eu": "ñç",
    "fi": "äåöšž",
    "fr": "àâæçéèêëîïôœùûüÿ",
    "ga": "áéíóú",
    "gl": "áéíñóúü",
    "ha": "ɓɗƙƴ",
    "hr": "čćđšž",
    "hu": "áéíóöőúüű",
    "id": "é",
    "is": "áðéíóúýþæö",
    "it": "àèéìíîòóùú",
    "lb": "äëéöüß",
    "lt": "ąčęėįšųūž",
    "lv": "āčēģīķļņšūž",
    "ms": "é",
    "mt": "ċġħżàèìòù",
    "nl": "áéëïíóöúüè",
    "no": "æøåéèêóòâô",
    "pl": "ąćęłńóśźż",
    "pt": "áâãàçéêíóôõúü",
    "ro": "ăâîșțşţ",
    "sk": "áäčďéíĺľňóôŕšťúýž",
    "sl": "čšž",
    "sq": "çë",
    "sv": "åäöé",
    "sw": "",
    "tl": "ñ",
    "tr": "çğıöşüâîû",
    "uz": "ʻʼ",
    "vi": "àáâãèéêìíòóôõùúýăđĩũơư" + "".join(map(chr, range(0x1EA0, 0x1EFA))),
    "zu": "",
}
_CYRILLIC, _DEVANAGARI, _ARABIC = (
    ((0x400, 0x52F),),
    ((0x900, 0x97F),),
    ((0x600, 0x6FF), (0x750, 0x77F), (0xFB50, 0xFDFF), (0xFE70, 0xFEFF)),
)
_HAN = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F), (0x3000, 0x303F), (0xFF00, 0xFFEF))
# Blocks of Unicode for languages in other scripts.
BLOCKS: dict[str, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys(("be", "bg", "kk", "ky", "mk", "mn", "ru", "sr", "tg", "uk"), _CYRILLIC),
    **dict.fromkeys(("hi", "mr", "ne", "sa"), _DEVANAGARI),
    **dict.fromkeys(("ar", "fa", "ps", "sd", "ug", "ur"), (*_ARABIC, (0x200C, 0x200F))),
    "am": ((0x1200, 0x139F),),
    "bn": ((0x980, 0x9FF),),
    "as": ((0x980, 0x9FF),),
    "el": ((0x370, 0x3FF), (0x1F00, 0x1FFF)),
    "gu": ((0xA80, 0xAFF),),
    "he": ((0x590, 0x5FF),),
    "yi": ((0x590, 0x5FF),),
    "hy": ((0x530, 0x58F),),
    "km": ((0x1780, 0x17FF),),
    "ka": ((0x10A0, 0x10FF), (0x1C90, 0x1CBF)),
    "kn": ((0xC80, 0xCFF),),
    "lo": ((0xE80, 0xEFF),),
    "ml": ((0xD00, 0xD7F),),
    "my": ((0x1000, 0x109F),),
    "or": ((0xB00, 0xB7F),),
    "pa": ((0xA00, 0xA7F),),
    "si": ((0xD80, 0xDFF),),
    "ta": ((0xB80, 0xBFF),),
    "te": ((0xC00, 0xC7F),),
    "th": ((0xE00, 0xE7F),),
    "zh": _HAN,
    "ja": (*_HAN, (0x3040, 0x30FF), (0x31F0, 0x31FF)),
    "ko": ((0xAC00, 0xD7AF), (0x1100, 0x11FF), (0x3130, 0x318F), (0x3000, 0x303F), (0xFF00, 0xFFEF)),
}
_EVERYWHERE = " \t\n\r0123456789.,;:!?'\"()[]{}-–—…%&/+*=@#$€£°«»„“”‘’‚‹›§_|<>~^`\\\u00a0\u00ad"
_PIECE = 1 << 20


@dataclass
class HistogramFilter(DocumentFilter):
    """1 if more than `threshold` of the characters are usual in the language, else 0: dropped.

    Whitespace around the text does not count as usual. `cache_dir`: a folder with one file per language in the format
    of NeMo Curator, one character at the beginning of each line, read up to the line that begins with `threshold_char`;
    without it, the built-in table.
    """

    lang: str = "en"
    threshold: float = 0.8
    cache_dir: str = ""
    threshold_char: str = "]"
    _name = "histogram"

    def __post_init__(self) -> None:
        self._table: np.ndarray[Any, Any] | None = None
        if not is_number(self.threshold):
            raise UsageError(f"HistogramFilter: threshold must be a number, got {self.threshold!r}")
        if not isinstance(self.threshold_char, str) or len(self.threshold_char) != 1:
            raise UsageError(f"HistogramFilter: threshold_char must be one character, got {self.threshold_char!r}")
        if self.cache_dir:
            self._read(self.cache_dir)
        elif self.lang not in LATIN and self.lang not in BLOCKS:
            raise UsageError(
                f"HistogramFilter: lang={self.lang!r} is not in the built-in table, which has "
                f"{', '.join(sorted([*LATIN, *BLOCKS]))}; give a cache_dir with the characters of others"
            )

    def _read(self, folder: str) -> str:
        path = os.path.join(folder, self.lang)
        try:
            with open(path, encoding="utf-8") as file:
                characters = []
                for line in file:
                    if line[0] == self.threshold_char:
                        break
                    characters.append(line[0])
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"HistogramFilter: no histogram of {self.lang!r} in cache_dir: {exc}") from None
        return "".join(characters)

    def model_fingerprint(self) -> str | None:
        return of_file(os.path.join(self.cache_dir, self.lang)) if self.cache_dir else ""

    def characters(self) -> np.ndarray[Any, Any]:
        """Return a mask of the usual characters, indexed by code point."""
        table = np.zeros(0x110000, bool)
        blocks = () if self.cache_dir else BLOCKS.get(self.lang, ())
        if self.cache_dir:
            letters = self._read(self.cache_dir)
        else:
            latin = LATIN.get(self.lang)
            alphabet = "" if latin is None else "abcdefghijklmnopqrstuvwxyz" + latin
            letters = _EVERYWHERE + alphabet + alphabet.upper()
        table[[ord(c) for c in letters]] = True
        for first, last in blocks:
            table[first : last + 1] = True
        return table

    def usual_share(self, text: str) -> float:
        """Return the share of the text's characters that are usual, without those stripped; 0 for an empty text."""
        if self._table is None:
            self._table = self.characters()
        inner = text.strip()
        n_usual = 0
        for begin in range(0, len(inner), _PIECE):  # a piece at a time, because this takes four bytes per character
            points = np.frombuffer(inner[begin : begin + _PIECE].encode("utf-32-le", "surrogatepass"), "<u4")
            n_usual += int(np.count_nonzero(self._table[points]))
        return n_usual / len(text) if text else 0.0

    def score_document(self, text: str) -> int:
        return int(self.usual_share(text) > self.threshold)

    def keep_document(self, score: Any) -> bool:
        return bool(score == 1)

    def thresholds(self) -> Mapping[str, Any]:
        return {"threshold": self.threshold, "lang": self.lang}


_deep_paths.register(__name__, "histogram")
