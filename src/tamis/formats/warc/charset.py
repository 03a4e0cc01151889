"""Text of web pages: which charset a page is in, and its bytes decoded.

Candidates in order, as in the WHATWG Encoding standard: a byte order mark, the HTTP header, `<meta charset>` in the
first 2 KiB, UTF-8, and what the bytes look like, unless there is a NUL among them. The first that decodes the page
without a fault is used: servers that declare a wrong charset are common. A page that is UTF-8 but for a few bytes (it
was cut off) is decoded as such; if nothing else fits either, the first candidate decodes it. U+FFFD then replaces the
bytes that do not fit, provided that these are few. Labels are looked up in a list of the standard's encodings: names
from pages never reach Python's codecs, some of which take quadratic time.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

from tamis.errors import optional

_META_BYTES = 2048
_MAX_REPLACED = 0.02  # of the characters; a page with more is not in that charset
_GOOD_PER_BAD = 20  # valid sequences of several bytes for each invalid one, in a page that is taken for UTF-8
_META = re.compile(rb"""<meta[^>]{0,400}?charset\s{0,8}=\s{0,8}["']?\s{0,8}([A-Za-z0-9_:.()-]{2,40})""", re.I)
_XML = re.compile(rb"""^\s{0,16}<\?xml[^>]{0,200}?encoding\s{0,8}=\s{0,8}["']([A-Za-z0-9_:.()-]{2,40})""", re.I)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

# Python's name of each encoding, and the labels that pages use for it. latin-1 means windows-1252 on the web.
_LABELS = {
    "utf-8": "utf-8 utf8 unicode-1-1-utf-8 x-unicode20utf8",
    "cp1252": "windows-1252 cp1252 x-cp1252 iso-8859-1 iso8859-1 iso88591 iso_8859-1 latin1 latin-1 l1 ascii us-ascii "
    "ansi_x3.4-1968 cp819 ibm819",
    "cp866": "ibm866 cp866 866 csibm866",
    "iso8859-2": "iso-8859-2 iso8859-2 iso_8859-2 latin2 l2",
    "iso8859-3": "iso-8859-3 iso8859-3 iso_8859-3 latin3 l3",
    "iso8859-4": "iso-8859-4 iso8859-4 iso_8859-4 latin4 l4",
    "iso8859-5": "iso-8859-5 iso8859-5 iso_8859-5 cyrillic",
    "iso8859-6": "iso-8859-6 iso8859-6 iso_8859-6 arabic asmo-708",
    "iso8859-7": "iso-8859-7 iso8859-7 iso_8859-7 greek greek8",
    "iso8859-8": "iso-8859-8 iso8859-8 iso_8859-8 hebrew iso-8859-8-i logical visual",
    "iso8859-10": "iso-8859-10 iso8859-10 latin6 l6",
    "iso8859-13": "iso-8859-13 iso8859-13",
    "iso8859-14": "iso-8859-14 iso8859-14",
    "iso8859-15": "iso-8859-15 iso8859-15 iso_8859-15 latin9 l9",
    "iso8859-16": "iso-8859-16 iso8859-16",
    "koi8-r": "koi8-r koi8 koi koi8_r",
    "koi8-u": "koi8-u koi8-ru",
    "mac-roman": "macintosh mac x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "cp874": "windows-874 dos-874 iso-8859-11 iso8859-11 tis-620",
    "cp1250": "windows-1250 cp1250 x-cp1250",
    "cp1251": "windows-1251 cp1251 x-cp1251 win-1251",
    "cp1253": "windows-1253 cp1253 x-cp1253",
    "cp1254": "windows-1254 cp1254 x-cp1254 iso-8859-9 iso8859-9 iso_8859-9 latin5 l5",
    "cp1255": "windows-1255 cp1255 x-cp1255",
    "cp1256": "windows-1256 cp1256 x-cp1256",
    "cp1257": "windows-1257 cp1257 x-cp1257",
    "cp1258": "windows-1258 cp1258 x-cp1258",
    "gb18030": "gb18030 gbk gb2312 chinese gb_2312-80 iso-ir-58 x-gbk",
    "big5hkscs": "big5 big5-hkscs cn-big5 x-x-big5",
    "euc-jp": "euc-jp x-euc-jp",
    "iso2022-jp": "iso-2022-jp csiso2022jp",
    "cp932": "shift_jis shift-jis sjis x-sjis ms_kanji windows-31j ms932",
    "cp949": "euc-kr ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949 korean",
    "utf-16-le": "utf-16le utf-16 unicode ucs-2 iso-10646-ucs-2",
    "utf-16-be": "utf-16be",
}
_NAMES = {label: name for name, labels in _LABELS.items() for label in labels.split()}
_SHOWN = {name: labels.split()[0] for name, labels in _LABELS.items()}


class DecodedText(NamedTuple):
    """A page as text. `utf8`: the same in UTF-8; `charset`: the label of the encoding that its bytes were in."""

    utf8: bytes
    charset: str


def decode_page(body: bytes, declared: str = "", is_markup: bool = True) -> DecodedText | None:
    """Decode a page; None if it is no text. `declared`: the charset of its HTTP header.

    >>> decode_page(bytes.fromhex("636166e9"), "ISO-8859-1").utf8.decode()
    'café'
    """
    first = ""
    for name, n_mark in _candidates(body, declared, is_markup):
        first = first or name
        if name == "utf-8":
            text = _nearly_utf8(body[n_mark:] if n_mark else body)
            if isinstance(text, bytes):
                return DecodedText(text, "utf-8")
        else:
            text = _decoded(body[n_mark:], name)
        if text is not None:
            return DecodedText(text.encode("utf-8", "replace"), _SHOWN[name])
    text = body.decode(first or "utf-8", "replace")
    if text.count("\ufffd") > _MAX_REPLACED * len(text):
        return None
    return DecodedText(text.removeprefix("\ufeff").encode("utf-8", "replace"), _SHOWN[first or "utf-8"])


def _nearly_utf8(data: bytes) -> bytes | str | None:
    """Return UTF-8 as it is, text with replacements if few bytes are wrong, None for other encodings."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as exc:
        text = data.decode("utf-8", "replace")
        if exc.start >= len(data) - 3:  # cut off inside of a character
            return text.rstrip("\ufffd")
        n_bad = text.count("\ufffd")
        n_good = len(text) - len(text.encode("ascii", "ignore")) - n_bad
        return text if n_bad * _GOOD_PER_BAD <= n_good else None
    return data


def _candidates(body: bytes, declared: str, is_markup: bool) -> Iterator[tuple[str, int]]:
    """Yield (encoding, length of its mark), each once; the last is found by statistics and costs most."""
    seen = set()
    for mark, name in _MARKS:
        if body.startswith(mark):
            seen.add(name)
            yield name, len(mark)
            break
    for label in (declared, *(_in_page(body) if is_markup else ())):
        if (known := _NAMES.get(label.strip().strip("\"'").lower())) and known not in seen:
            if known.startswith("utf-16") and label != declared:
                continue  # a page whose tags can be read is in no UTF-16, whatever they say
            seen.add(known)
            yield known, 0
    if "utf-8" not in seen:
        seen.add("utf-8")
        yield "utf-8", 0
    if b"\0" in body:  # images and archives that servers call pages: statistics take long on them
        return
    encoding = optional("resiliparse.parse.encoding", "detecting the charset of pages", "html")
    detected = _NAMES.get(str(encoding.detect_encoding(body, from_html_meta=False) or "").lower())
    if detected is not None and detected not in seen:
        yield detected, 0


def _in_page(body: bytes) -> Iterator[str]:
    head = body[:_META_BYTES]
    for pattern in (_XML, _META):
        if match := pattern.search(head):
            yield match[1].decode("ascii")


def _decoded(body: bytes, name: str) -> str | None:
    try:
        return body.decode(name)
    except (UnicodeDecodeError, LookupError):
        return None
