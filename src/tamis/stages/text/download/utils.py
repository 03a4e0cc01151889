"""Bytes of web pages to text, and which language it is in. Needs the extra `html`."""

from __future__ import annotations

import shutil
import unicodedata
from functools import cache
from typing import Any

from tamis.errors import optional
from tamis.stages.text.langid import MAX_BYTES
from tamis.stages.text.utils.languages import language_name

_LOOK_CHARS = 200_000  # of a page, for its language, where these have as much text as the model looks at


def check_s5cmd_installed() -> bool:
    """Return True if the command s5cmd is installed.

    Tamis does not need it: files on S3 are fetched with the extra `s3`.
    """
    return shutil.which("s5cmd") is not None


def remove_control_characters(text: str) -> str:
    r"""Return `text` without characters of the Unicode category "other" (control, format, ...), line ends included.

    >>> remove_control_characters("a\x00b\u200bc\n")
    'abc'
    """
    return "".join(c for c in text if unicodedata.category(c)[0] != "C")


def detect_language(text: str) -> tuple[tuple[str, str, float], ...]:
    """Detect the language of plain text or HTML, as ((name, code, score),).

    Name "UNKNOWN" and code "un" if it is unknown.

    The score is the model's, 0 to 1.
    """
    codes, scores = _language_id().detect([_beginning(text)])
    code = codes[0].as_py()
    return ((language_name(code), code, float(scores[0])),) if code else (("UNKNOWN", "un", 0.0),)


def _beginning(text: str) -> str:
    """Return visible text for the language model, from the first part of a page.

    If scripts and styles fill that part, the whole page is used.
    """
    visible = _visible(text[:_LOOK_CHARS])
    return visible if len(text) <= _LOOK_CHARS or len(visible) >= MAX_BYTES else _visible(text)


def _visible(text: str) -> str:
    """Return the text without markup, by a parser: tag patterns take forever on pages made for that."""
    if "<" not in text:
        return text
    html2text = optional("resiliparse.extract.html2text", "telling the language of pages", "html")
    return str(html2text.extract_plain_text(text, preserve_formatting=False, links=False))


def lang_detect(text: str) -> str:
    """Return the name of the language of plain text or HTML, in capitals.

    "ENGLISH", "GERMAN", "CHINESE"; "UNKNOWN" if no language is detected.
    """
    return detect_language(text)[0][0]


def decode_html(html_bytes: bytes) -> str | None:
    """Decode a page: as UTF-8 if valid, else by its own `<meta charset>`, else by what its bytes look like.

    Returns None if it is not text.
    """
    try:
        return bytes(html_bytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        return try_decode_with_detected_encoding(html_bytes)


def try_decode_with_detected_encoding(html_bytes: bytes) -> str | None:
    """Decode a page that is not UTF-8, as `decode_html` does.

    Nothing is invented: a byte that fits no encoding means None.
    """
    encoding = optional("resiliparse.parse.encoding", "decoding of pages", "html")
    data = bytes(html_bytes)
    for from_meta in (True, False):
        name = encoding.detect_encoding(data, from_html_meta=from_meta)
        try:
            if name and name.lower().replace("-", "") != "utf8":
                return data.decode(name)
        except (LookupError, UnicodeDecodeError):
            continue
    return None


@cache
def _language_id() -> Any:
    from tamis.stages.text.langid import LanguageId

    return LanguageId()
