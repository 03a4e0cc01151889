"""Changes of source code in words: the plan of a run keeps the code that it depends on, without texts and comments.

A message can then name the line that was edited. Strings may be passwords, and everyone may read a run directory: they
are left out, like comments, which tell nobody what a stage does.
"""

from __future__ import annotations

import difflib
import io
import tokenize
from collections.abc import Sequence

MAX_LINES, MAX_COLUMNS = 400, 160
_MASK = '"..."'
_MAX_NAMED = 2
_STRING_STARTS = tuple(
    getattr(tokenize, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(tokenize, name)
)
_STRING_ENDS = tuple(getattr(tokenize, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(tokenize, name))


def code_lines(text: str) -> list[str]:
    r"""Return the lines of a source text without indentation, comments and the contents of strings.

    >>> code_lines('def keep(x):\n    \"\"\"Say why.\"\"\"\n    return x > 0.5 and key != "sk-1"  # really\n')
    ['def keep(x):', '"..."', 'return x > 0.5 and key != "..."']
    """
    lines: list[str] = []
    line, end, depth = "", (0, 0), 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in _STRING_ENDS:
                depth, end = depth - 1, token.end
                continue
            if token.type in _STRING_STARTS:
                depth += 1
            if depth > (token.type in _STRING_STARTS) or token.type in (tokenize.COMMENT, tokenize.INDENT):
                continue
            if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER):
                if line.strip():
                    lines.append(line.strip()[:MAX_COLUMNS])
                line = ""
                continue
            if token.type == tokenize.DEDENT:
                continue
            gap = " " * (token.start[1] - end[1]) if line and token.start[0] == end[0] else ""
            is_string = token.type == tokenize.STRING or token.type in _STRING_STARTS
            line, end = line + gap + (_MASK if is_string else token.string), token.end
    except (tokenize.TokenError, SyntaxError):  # a part of a file that is no program by itself
        pass
    return lines[:MAX_LINES]


def describe_change(before: Sequence[str], now: Sequence[str]) -> str:
    """Describe how the lines of some code changed; empty if they did not, or are not known."""
    if not before or not now or list(before) == list(now):
        return ""
    changes = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, now, autojunk=False).get_opcodes():
        if kind == "replace" and b - a == d - c:
            changes += [f"`{old}` -> `{new}`" for old, new in zip(before[a:b], now[c:d], strict=True)]
        elif kind != "equal":
            changes += [f"`{line}` removed" for line in before[a:b]] + [f"`{line}` added" for line in now[c:d]]
    more = f" and {len(changes) - _MAX_NAMED} more lines" if len(changes) > _MAX_NAMED else ""
    return ", ".join(changes[:_MAX_NAMED]) + more
