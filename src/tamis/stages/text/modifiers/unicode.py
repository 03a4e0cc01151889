"""Modifiers of Unicode: normal forms, and repair of broken encodings by ftfy (extra `text`)."""

from __future__ import annotations

import inspect
import re
import unicodedata
from functools import lru_cache
from typing import Any, Literal

from tamis import _deep_paths
from tamis._lazy import np, pa, pc
from tamis.errors import UsageError, optional
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
_MANY, _END = 30, 0x20000
_BEYOND_LATIN = re.compile(f"[\u0300-\U0010ffff]{{{_MANY + 1}}}")


class UnicodeNormalizer(DocumentModifier):
    """Replaces a text by its normal form: `unicodedata.normalize(form, text)`, but in linear time.

    `unicodedata` takes time quadratic in the number of combining marks in a row to sort them. In documents with more
    than 30 (the limit of Unicode's stream-safe format) they are sorted first.
    """

    def __init__(self, form: Form = "NFC") -> None:
        if form not in ("NFC", "NFD", "NFKC", "NFKD"):
            raise UsageError(f"UnicodeNormalizer(form=...): expected NFC, NFD, NFKC or NFKD, got {form!r}")
        self.form: Form = form

    def candidates(self, texts: pa.Array) -> pa.Array:
        return pc.invert(pc.string_is_ascii(texts))

    def modify_document(self, text: str) -> str:
        if text.isascii():
            return text
        if _has_many_marks(text):
            text = _in_order(text, "NFD" if self.form in ("NFC", "NFD") else "NFKD")
        return unicodedata.normalize(self.form, text)


def _has_many_marks(text: str) -> bool:
    """Return True for more marks in a row than any language writes, including characters that decompose into marks."""
    if _BEYOND_LATIN.search(text) is None:
        return False
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    others = np.flatnonzero(~_marks()[np.minimum(codes, _END)])
    return int(np.diff(others, prepend=-1, append=len(codes)).max()) > _MANY + 1


@lru_cache(maxsize=1)
def _marks() -> np.ndarray[Any, Any]:
    """Return a mask, by code point, of the characters that are a mark in any form."""
    table = np.zeros(_END + 1, bool)
    for code in range(0x300, _END):
        table[code] = unicodedata.combining(unicodedata.normalize("NFKD", chr(code))[0]) != 0
    return table


def _in_order(text: str, form: Form) -> str:
    """Return the decomposed text, with the marks between starters sorted by their class."""

    @lru_cache(maxsize=4096)
    def parts(c: str) -> str:
        return unicodedata.normalize(form, c)

    out: list[str] = []
    marks: list[str] = []
    for whole in text:
        for c in parts(whole):
            if unicodedata.combining(c):
                marks.append(c)
                continue
            if marks:
                out += sorted(marks, key=unicodedata.combining)
                marks = []
            out.append(c)
    return "".join([*out, *sorted(marks, key=unicodedata.combining)])


class UnicodeReformatter(DocumentModifier):
    """Repairs a text by `ftfy.fix_text` with these settings, which ftfy documents; `explain` has no effect.

    `config`: an `ftfy.TextFixerConfig` with all of them. A normal form is applied after all repairs, and both are
    repeated until nothing changes.
    """

    def __init__(
        self,
        config: Any = None,
        unescape_html: bool | str = "auto",
        remove_terminal_escapes: bool = True,
        fix_encoding: bool = True,
        restore_byte_a0: bool = True,
        replace_lossy_sequences: bool = True,
        decode_inconsistent_utf8: bool = True,
        fix_c1_controls: bool = True,
        fix_latin_ligatures: bool = False,
        fix_character_width: bool = False,
        uncurl_quotes: bool = False,
        fix_line_breaks: bool = False,
        fix_surrogates: bool = True,
        remove_control_chars: bool = True,
        normalization: Form | None = None,
        max_decode_length: int = 1000000,
        explain: bool = True,
    ) -> None:
        self.settings = {k: v for k, v in locals().items() if k not in ("self", "__class__", "config")}
        if config is not None:
            self.settings = _settings_of(config, self.settings)
            max_decode_length, normalization = self.settings["max_decode_length"], self.settings["normalization"]
        if isinstance(max_decode_length, bool) or not isinstance(max_decode_length, int) or max_decode_length < 1:
            # ftfy would never reach the end of a text
            raise UsageError(
                f"UnicodeReformatter(max_decode_length=...): expected a whole number from 1, got {max_decode_length!r}"
            )
        _import_ftfy()
        self._config: Any = None
        self._normalizer = UnicodeNormalizer(normalization) if normalization is not None else None

    def candidates(self, texts: pa.Array) -> pa.Array:
        r"""Return a mask of texts with non-ASCII or control characters, an HTML entity, or a `\r` to fix."""
        fine = r"\n\t -%'-~" + ("" if self.settings["fix_line_breaks"] else r"\r")
        return pc.match_substring_regex(texts, pattern=f"[^{fine}]")

    def modify_document(self, text: str) -> str:
        ftfy = _import_ftfy()
        if self._config is None:
            # ftfy would take quadratic time for the normal form.
            self._config = ftfy.TextFixerConfig(**{**self.settings, "normalization": None})
        if self._normalizer is None:
            return str(ftfy.fix_text(text, config=self._config))
        while True:
            fixed = self._normalizer.modify_document(ftfy.fix_text(text, config=self._config))
            if fixed == text:
                return fixed
            text = fixed


def _settings_of(config: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a TextFixerConfig; reject other parameters, which would have no effect."""
    if not hasattr(config, "_asdict"):
        raise UsageError(
            f"UnicodeReformatter(config=...): expected an ftfy.TextFixerConfig, got {type(config).__name__}"
        )
    defaults = {k: p.default for k, p in inspect.signature(UnicodeReformatter).parameters.items()}
    others = sorted(k for k, v in parameters.items() if v != defaults[k])
    if others:
        raise UsageError(f"UnicodeReformatter: give config, or {', '.join(others)}, not both")
    settings: dict[str, Any] = config._asdict()
    return {k: settings[k] for k in parameters}


def _import_ftfy() -> Any:
    return optional("ftfy", "UnicodeReformatter", "text")


_deep_paths.register(__name__, "unicode_reformatter")
