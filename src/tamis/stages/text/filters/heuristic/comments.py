"""Comments of source code, found by small scanners: one pass, linear in the text, on anything that claims to be code.

Python's own tokenizer and comment parsers for other languages refuse what does not compile; a scanner always has an
answer. It knows strings and comments, not grammars: regular expression literals and here-documents are read as code.
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


def python_comments(source: str) -> tuple[int, int]:
    """Characters of comments (with their #), and of strings that stand alone as a statement (without quotes)."""
    n_comment = n_docstring = depth = at = 0
    line_start, continued = 0, False
    while True:
        found = _PYTHON.search(source, at)
        if found is None:
            return n_comment, n_docstring
        char, begin = found[0], found.start()
        at = begin + 1
        if char == "\n":
            line_start, continued = at, False
        elif char == "\\":
            if source[at : at + 1] == "\n":
                at += 1
                line_start, continued = at, True
        elif char == "#":
            end = _line_end(source, begin)
            n_comment += end - begin
            at = end
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(depth - 1, 0)
        else:
            quote = char * 3 if source.startswith(char * 3, begin) else char
            inner = begin + len(quote)
            closed, at = _string_end(source, inner, quote)
            alone = depth == 0 and not continued and begin - line_start < 300
            if alone and _PREFIX.match(source, line_start, begin) and _ends_statement(source, at):
                n_docstring += closed - inner
            if quote != char:
                line_start = max(line_start, source.rfind("\n", inner, at) + 1)


def _string_end(source: str, at: int, quote: str) -> tuple[int, int]:
    """(where the contents end, where code goes on). A plain string ends with its line, a triple one with the text."""
    for found in _CLOSE[quote].finditer(source, at):
        if found[0] == quote:
            return found.start(), found.end()
        if found[0] == "\n":
            return found.start(), found.start()
    return len(source), len(source)


def _ends_statement(source: str, at: int) -> bool:
    """Return True if only spaces, a comment or a semicolon follows on the line.

    Examines a few characters only.
    """
    rest = source[at : at + 80].lstrip(" \t")
    return not rest or rest[0] in "\n\r#;"


def _line_end(source: str, at: int) -> int:
    end = source.find("\n", at)
    return len(source) if end < 0 else end


def _c_like(source: str, quotes: str = "\"'") -> Iterator[int]:
    """Lengths of the contents of // and /* */ comments."""
    marks = re.compile("|".join(["//", r"/\*", *quotes]))
    at = 0
    while (found := marks.search(source, at)) is not None:
        begin = found.end()
        if found[0] == "//":
            at = _line_end(source, begin)
            yield at - begin
        elif found[0] == "/*":
            end = source.find("*/", begin)
            end, at = (len(source), len(source)) if end < 0 else (end, end + 2)
            yield end - begin
        else:
            at = _string_end(source, begin, found[0])[1]


def _with_backquotes(source: str) -> Iterator[int]:
    return _c_like(source, "\"'`")


def _shell(source: str) -> Iterator[int]:
    """Contents after a # that begins a word, outside of quotes."""
    marks = re.compile(r"""\\.|["'#]""", re.DOTALL)
    at = 0
    while (found := marks.search(source, at)) is not None:
        begin = found.end()
        at = begin
        if found[0] == "'":
            end = source.find("'", begin)
            at = len(source) if end < 0 else end + 1
        elif found[0] == '"':
            at = next((m.end() for m in _DOUBLE.finditer(source, begin) if m[0] == '"'), len(source))
        elif found[0] == "#" and (begin == 1 or source[begin - 2] in " \t\n;&|("):
            at = _line_end(source, begin)
            yield at - begin


def _ruby(source: str) -> Iterator[int]:
    """Yield the lengths of comments as in a shell, and of =begin ... =end blocks at line starts."""
    text, at = "\n" + source, 0
    while (begin := text.find("\n=begin", at)) >= 0:
        yield from _shell(text[at:begin])
        inner = begin + len("\n=begin")
        end = text.find("\n=end", inner)
        end = len(text) if end < 0 else end
        yield end - inner
        at = min(end + len("\n=end"), len(text))
    yield from _shell(text[at:])


def _markup(source: str) -> Iterator[int]:
    """Contents of <!-- -->."""
    at = 0
    while (begin := source.find("<!--", at)) >= 0:
        end = source.find("-->", begin + 4)
        end, at = (len(source), len(source)) if end < 0 else (end, end + 3)
        yield end - begin - 4


def _python(source: str) -> Iterator[int]:
    """Contents of # comments."""
    at = 0
    while (found := _PYTHON.search(source, at)) is not None:
        at = found.end()
        if found[0] == "#":
            at = _line_end(source, found.end())
            yield at - found.end()
        elif found[0] in "\"'":
            quote = found[0] * 3 if source.startswith(found[0] * 3, found.start()) else found[0]
            at = _string_end(source, found.start() + len(quote), quote)[1]


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
    """Characters in comments, without comment marks, with one space between comments."""
    lengths = list(SCANNERS[mime](source))
    return sum(lengths) + max(len(lengths) - 1, 0)
