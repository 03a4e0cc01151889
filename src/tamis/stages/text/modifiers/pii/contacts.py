"""Finds email addresses and telephone numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

_LETTERS = "".join(c for c in map(chr, range(0x250)) if c.isalpha())  # ASCII and Latin with accents
_DIGITS = "0123456789"
_LOCAL = _LETTERS + _DIGITS + "._%+-"
_DOMAIN = _LETTERS + _DIGITS + ".-"
# logo@2x.png is a file.
_FILE_EXTENSIONS = {
    "png", "jpg", "jpeg", "gif", "svg", "webp", "avif", "ico", "bmp", "css", "js", "json", "html", "pdf", "mp4", "webm",
}  # fmt: skip
_MAX_LOCAL, _MAX_DOMAIN, _MAX_LABEL = 64, 253, 63

# Separators between groups of an international number, and the number of its digits (E.164: at most 15).
_GAP = re.compile(r" ?\(|\)[ -]?| - |[ .\-/\u00a0]")
_RUN = re.compile("[0-9]{1,16}")
_MIN_DIGITS, _MAX_DIGITS = 9, 15
_NORTH_AMERICAN = re.compile(
    r"(?<![0-9A-Za-z.+\-/])(?:1[ .-])?"
    r"(?:\([2-9][0-9]{2}\)[ -]?[2-9][0-9]{2}[ .-][0-9]{4}"
    r"|[2-9][0-9]{2}([.-])[2-9][0-9]{2}\1[0-9]{4}"
    r"|[2-9][0-9]{2} [2-9][0-9]{2}-[0-9]{4})"
    r"(?![0-9A-Za-z]|[.\-/][0-9])"
)


def find_emails(text: str) -> Iterator[Span]:
    """Yield the spans of e-mail addresses, extending from every @ to both sides as far as an address may reach."""
    done, at_sign = 0, text.find("@")
    while at_sign >= 0:
        before = text[max(done, at_sign - _MAX_LOCAL - 1) : at_sign]
        local = before[len(before.rstrip(_LOCAL)) :]
        if local and len(local) <= _MAX_LOCAL and local[-1] != ".":
            local = local[local.rfind("..") + 2 if ".." in local else 0 :].lstrip(".-%+")
            end = at_sign + 1 + _domain_length(text[at_sign + 1 : at_sign + 2 + _MAX_DOMAIN])
            if local and end > at_sign + 1:
                yield at_sign - len(local), end
                done = end
        at_sign = text.find("@", at_sign + 1)


def _domain_length(text: str) -> int:
    """Return the length of the leading domain name with a plausible top-level domain, or 0 if there is none."""
    run = text[: len(text) - len(text.lstrip(_DOMAIN))]
    if len(run) > _MAX_DOMAIN:
        return 0
    length = position = 0
    for i, label in enumerate(run.split(".")):
        name = label.partition("-")[0] if i and label[:4].lower() != "xn--" else label
        if i and len(name) >= 2 and (name.isalpha() or name[:4].lower() == "xn--"):
            length = 0 if name.lower() in _FILE_EXTENSIONS else position + len(name)
        if not 0 < len(label) <= _MAX_LABEL or label[0] == "-" or label[-1] == "-":
            break
        position += len(label) + 1
    return length


def find_phones(text: str) -> Iterator[Span]:
    """Yield the spans of international numbers that begin with +, and of North American ones in groups."""
    parts, done, plus = [], 0, text.find("+")
    while plus >= 0:
        end = _international_end(text, plus)
        if end:
            yield plus, end
            parts += [text[done:plus], "\0" * (end - plus)]
            done = end
        plus = text.find("+", max(plus + 1, end))
    for match in _NORTH_AMERICAN.finditer("".join([*parts, text[done:]]) if parts else text):
        yield match.span()


def _is_balanced(gap: str, is_open: bool, n_digits: int) -> bool:
    """Return True if the brackets between two runs of digits may stand there, after `n_digits` of the number."""
    if ")" in gap and not is_open:
        return False
    return "(" not in gap or not (is_open or n_digits > 3)  # only the country code may precede brackets


def _international_end(text: str, plus: int) -> int:
    """Return the end of the number that begins at this +, or 0 if there is none."""
    if plus and (text[plus - 1].isalnum() or text[plus - 1] == "+"):
        return 0
    run = _RUN.match(text, plus + 1)
    if run is None or run[0][0] == "0":
        return 0
    n_digits, end, is_open = 0, plus, False
    while run is not None and n_digits + len(run[0]) <= _MAX_DIGITS:
        n_digits, end = n_digits + len(run[0]), run.end()
        gap = _GAP.match(text, end)
        if gap is None or not _is_balanced(gap[0], is_open, n_digits):
            break
        is_open = "(" in gap[0] or (is_open and ")" not in gap[0])
        run = _RUN.match(text, gap.end())
    if n_digits < _MIN_DIGITS or text[end : end + 1].isalnum():
        return 0
    return end
