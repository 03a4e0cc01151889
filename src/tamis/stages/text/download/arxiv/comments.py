"""Comments of TeX files."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%.*")
_BEGIN, _END = r"\begin{comment}", r"\end{comment}"


def without_comments(text: str) -> str:
    r"""Return TeX without its comments; an escaped percent sign is none.

    >>> print(without_comments(r"5\% of it% a remark"))
    5\% of it
    >>> without_comments(r"\begin{comment}x\end{comment}y")
    'y'
    """
    return _COMMENT.sub(r"\1", _without_blocks(text))


def _without_blocks(text: str) -> str:
    """Remove blocks by searching: a pattern that looks for the end from every beginning can take forever."""
    parts, at = [], 0
    while (begin := text.find(_BEGIN, at)) >= 0 and (end := text.find(_END, begin)) >= 0:
        parts.append(text[at:begin])
        at = end + len(_END)
    return "".join([*parts, text[at:]])
