"""Broken encodings and stray characters, repaired by ftfy (extra `text`)."""

from __future__ import annotations

import inspect
from typing import Any

from tamis._lazy import pa, pc
from tamis.errors import UsageError, optional
from tamis.stages.text.modifiers.doc_modifier import DocumentModifier
from tamis.stages.text.modifiers.unicode.normalizer import Form, UnicodeNormalizer


class UnicodeReformatter(DocumentModifier):
    """`ftfy.fix_text` with these settings (ftfy's documentation says what each does); `explain` changes nothing here.

    `config`: an `ftfy.TextFixerConfig` with all of them at once. A normal form is applied after all repairs, and both again until nothing changes.
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
            # ftfy would never come to the end of a text
            raise UsageError(
                f"UnicodeReformatter(max_decode_length=...): expected a whole number from 1, got {max_decode_length!r}"
            )
        _import_ftfy()
        self._config: Any = None
        self._normalizer = UnicodeNormalizer(normalization) if normalization is not None else None

    def candidates(self, texts: pa.Array) -> pa.Array:
        r"""ftfy changes printable ASCII only where there is an HTML entity (or `\r`, when it may fix line breaks)."""
        fine = r"\n\t -%'-~" + ("" if self.settings["fix_line_breaks"] else r"\r")
        return pc.match_substring_regex(texts, pattern=f"[^{fine}]")

    def modify_document(self, text: str) -> str:
        ftfy = _import_ftfy()
        if self._config is None:
            # Not left to ftfy, which would take quadratic time for it.
            self._config = ftfy.TextFixerConfig(**{**self.settings, "normalization": None})
        if self._normalizer is None:
            return str(ftfy.fix_text(text, config=self._config))
        while True:
            fixed = self._normalizer.modify_document(ftfy.fix_text(text, config=self._config))
            if fixed == text:
                return fixed
            text = fixed


def _settings_of(config: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a TextFixerConfig.

    Settings that are given next to it would have no effect, and are rejected.
    """
    if not hasattr(config, "_asdict"):
        raise UsageError(
            f"UnicodeReformatter(config=...): expected an ftfy.TextFixerConfig, got {type(config).__name__}"
        )
    usual = {k: p.default for k, p in inspect.signature(UnicodeReformatter).parameters.items()}
    beside = sorted(k for k, v in given.items() if v != usual[k])
    if beside:
        raise UsageError(f"UnicodeReformatter: give config, or {', '.join(beside)}, not both")
    settings: dict[str, Any] = config._asdict()
    return {k: settings[k] for k in given}


def _import_ftfy() -> Any:
    return optional("ftfy", "UnicodeReformatter", "text")
