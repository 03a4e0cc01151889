"""Counts the characters of comments in source code, by small scanners: one pass, linear in the text.

Python's own tokenizer and comment parsers for other languages reject invalid code; a scanner always has a result. It
knows strings and comments, not grammars: regular expression literals and here-documents are read as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_PYTHON = re.compile(r"""[#"'()\[\]{}\n\\]""")
_CLOSE = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in ("'''", '"""')}
_CLOSE |= {quote: re.compile(rf"\\.|{quote}|\n", re.DOTALL) for quote in ("'", '"')}
_DOUBLE = re.compile(r'\\.|"', re.DOTALL)
_CLOSE["`"] = re.compile(r"\\.|`", re.DOTALL)
_PREFIX = re.compile(r"[ \t\f]*(?:[rRuUbBfF]{0,2})\Z")


def _is_statement(source: str, line_start: int, begin: int, end: int) -> bool:
    """Return True if a string literal is all that its line has, apart from its prefix."""
    if begin - line_start >= 300 or _PREFIX.match(source, line_start, begin) is None:
        return False
    return _ends_statement(source, end)


def python_comments(source: str) -> tuple[int, int]:
    """Return the characters of comments (with their #), and of strings that are a statement (without quotes)."""
    n_comment = n_docstring = depth = position = 0
    line_start, continued = 0, False
    while True:
        match = _PYTHON.search(source, position)
        if match is None:
            return n_comment, n_docstring
        char, begin = match[0], match.start()
        position = begin + 1
        if char == "\n":
            line_start, continued = position, False
        elif char == "\\":
            if source[position : position + 1] == "\n":
                position += 1
                line_start, continued = position, True
        elif char == "#":
            end = _line_end(source, begin)
            n_comment += end - begin
            position = end
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(depth - 1, 0)
        else:
            quote = char * 3 if source.startswith(char * 3, begin) else char
            inner = begin + len(quote)
            closed, position = _string_end(source, inner, quote)
            may_begin = depth == 0 and not continued
            if may_begin and _is_statement(source, line_start, begin, position):
                n_docstring += closed - inner
            if quote != char:
                line_start = max(line_start, source.rfind("\n", inner, position) + 1)


def _string_end(source: str, position: int, quote: str) -> tuple[int, int]:
    """Return the ends of the contents and of the closing quotes.

    A plain string ends with its line at the latest, a triple one with the text.
    """
    for match in _CLOSE[quote].finditer(source, position):
        if match[0] == quote:
            return match.start(), match.end()
        if match[0] == "\n":
            return match.start(), match.start()
    return len(source), len(source)


def _ends_statement(source: str, position: int) -> bool:
    """Return True if only spaces, a comment or a semicolon follows on the line.

    Examines a few characters only.
    """
    rest = source[position : position + 80].lstrip(" \t")
    return not rest or rest[0] in "\n\r#;"


def _line_end(source: str, position: int) -> int:
    end = source.find("\n", position)
    return len(source) if end < 0 else end


def _c_like(source: str, quotes: str = "\"'") -> Iterator[int]:
    """Yield the lengths of the contents of // and /* */ comments."""
    marks = re.compile("|".join(["//", r"/\*", *quotes]))
    position = 0
    while (match := marks.search(source, position)) is not None:
        begin = match.end()
        if match[0] == "//":
            position = _line_end(source, begin)
            yield position - begin
        elif match[0] == "/*":
            end = source.find("*/", begin)
            end, position = (len(source), len(source)) if end < 0 else (end, end + 2)
            yield end - begin
        else:
            position = _string_end(source, begin, match[0])[1]


def _with_backquotes(source: str) -> Iterator[int]:
    return _c_like(source, "\"'`")


def _shell(source: str) -> Iterator[int]:
    """Yield the lengths of comments after a # that begins a word, outside of quotes."""
    marks = re.compile(r"""\\.|["'#]""", re.DOTALL)
    position = 0
    while (match := marks.search(source, position)) is not None:
        begin = match.end()
        position = begin
        if match[0] == "'":
            end = source.find("'", begin)
            position = len(source) if end < 0 else end + 1
        elif match[0] == '"':
            position = next((m.end() for m in _DOUBLE.finditer(source, begin) if m[0] == '"'), len(source))
        elif match[0] == "#" and (begin == 1 or source[begin - 2] in " \t\n;&|("):
            position = _line_end(source, begin)
            yield position - begin


def _ruby(source: str) -> Iterator[int]:
    """Yield the lengths of comments as in a shell, and of =begin ... =end blocks at line starts."""
    text, position = "\n" + source, 0
    while (begin := text.find("\n=begin", position)) >= 0:
        yield from _shell(text[position:begin])
        inner = begin + len("\n=begin")
        end = text.find("\n=end", inner)
        end = len(text) if end < 0 else end
        yield end - inner
        position = min(end + len("\n=end"), len(text))
    yield from _shell(text[position:])


def _markup(source: str) -> Iterator[int]:
    """Yield the lengths of the contents of <!-- -->."""
    position = 0
    while (begin := source.find("<!--", position)) >= 0:
        end = source.find("-->", begin + 4)
        end, position = (len(source), len(source)) if end < 0 else (end, end + 3)
        yield end - begin - 4


def _python(source: str) -> Iterator[int]:
    """Yield the lengths of # comments."""
    position = 0
    while (match := _PYTHON.search(source, position)) is not None:
        position = match.end()
        if match[0] == "#":
            position = _line_end(source, match.end())
            yield position - match.end()
        elif match[0] in "\"'":
            quote = match[0] * 3 if source.startswith(match[0] * 3, match.start()) else match[0]
            position = _string_end(source, match.start() + len(quote), quote)[1]


SCANNERS: dict[str, Callable[[str], Iterator[int]]] = {
    **dict.fromkeys(
        (
            "text/x-c",
            "text/x-c++",
            "text/x-csrc",
            "text/x-c++src",
            "text/x-java",
            "text/x-java-source",
            "text/x-csharp",
            "text/x-rust",
            "text/x-kotlin",
            "text/x-scala",
            "text/x-swift",
            "text/x-php",
        ),
        _c_like,
    ),
    **dict.fromkeys(
        ("application/javascript", "text/javascript", "text/x-javascript", "text/x-typescript", "text/x-go"),
        _with_backquotes,
    ),
    **dict.fromkeys(("text/x-shellscript", "application/x-sh", "text/x-perl", "text/x-yaml"), _shell),
    "text/x-ruby": _ruby,
    **dict.fromkeys(("text/x-python", "text/x-python3"), _python),
    **dict.fromkeys(("text/html", "text/xml", "application/xml"), _markup),
}


def comment_chars(source: str, mime: str) -> int:
    """Count the characters in comments, without comment marks, with one space between comments."""
    lengths = list(SCANNERS[mime](source))
    return sum(lengths) + max(len(lengths) - 1, 0)
