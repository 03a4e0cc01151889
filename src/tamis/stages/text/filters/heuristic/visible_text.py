"""Extract the text of HTML source, with the white space that HTMLBoilerplateFilter counts.

Gives the text that `BeautifulSoup(source, "html.parser").get_text()` returns after its script and style elements are
removed, in one pass that is linear in the source and keeps no tree:

- Text between two pieces of markup is one node. A node of ASCII white space only counts as a single line feed (if it
  contains one) or space, except inside `pre` and `textarea`: the indentation of the markup is not content.
- Comments, declarations, processing instructions and the texts of `script`, `style`, `template`, `rt` and `rp` are left
  out; CDATA sections are text wherever they are.
- An end tag closes every element opened since its start tag; an end tag without a start tag closes nothing.

Markup that is never closed extends to the end of the source, as the HTML standard has it. Python's parser differs
between its releases there.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from html.entities import html5

_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])")
_NAME = re.compile(r"/?([a-zA-Z][^\t\n\r\f />\x00]*+)")
# Up to the closing mark; a quoted value, which may contain one, begins after "=". An open quote ends with the source.
_ATTRIBUTES = re.compile(
    r"""(?:[^>=]++|=[\s=]*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|(?!["'])[^>\s]*+))*+(?:>|\Z)""", re.DOTALL
)
_COMMENT_END = re.compile(r"--!?>")
_RAW_END = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}
_REFERENCE = re.compile(r"&(?:#([0-9]++|[xX][0-9a-fA-F]++)|([a-zA-Z][-.a-zA-Z0-9]*+));?")
_MAX_DIGITS = 20  # no character has a longer number, and Python refuses to read numbers of more than 4300 digits

_EMPTY = frozenset(
    [
        "area",
        "base",
        "basefont",
        "bgsound",
        "br",
        "col",
        "command",
        "embed",
        "frame",
        "hr",
        "image",
        "img",
        "input",
        "isindex",
        "keygen",
        "link",
        "menuitem",
        "meta",
        "nextid",
        "param",
        "source",
        "spacer",
        "track",
        "wbr",
    ]
)
_PREFORMATTED = frozenset({"pre", "textarea"})
_NOT_SHOWN = frozenset({"script", "style", "template", "rt", "rp"})


class _OpenElements:
    """The elements that are open at one position of the source."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._count: Counter[str] = Counter()
        self.preformatted = 0
        self.hidden = 0

    def open(self, name: str) -> None:
        self._names.append(name)
        self._add(name, 1)

    def close(self, name: str) -> None:
        """Close the innermost element of this name with everything inside it; ignore a name that is not open."""
        while self._count[name]:
            innermost = self._names.pop()
            self._add(innermost, -1)
            if innermost == name:
                return

    def _add(self, name: str, n: int) -> None:
        self._count[name] += n
        self.preformatted += n * (name in _PREFORMATTED)
        self.hidden += n * (name in _NOT_SHOWN)


def _pass_tag(source: str, tag: re.Match[str], elements: _OpenElements) -> int:
    """Open or close the element of a tag; return where text continues, which is after the contents of a script."""
    attributes = _ATTRIBUTES.match(source, tag.end())
    assert attributes is not None  # it matches up to the end of the source, if nothing closes the tag
    end, name = attributes.end(), tag[1].lower()
    if tag[0].startswith("/"):
        elements.close(name)
    elif not source.endswith("/>", 0, end) and name not in _EMPTY:
        elements.open(name)
        if name in _RAW_END:
            raw_end = _RAW_END[name].search(source, end)
            return len(source) if raw_end is None else raw_end.start()
    return end


def visible_text(source: str) -> str:
    """Return the text of HTML source without markup, scripts and styles."""
    nodes: list[str] = []
    pending: list[str] = []
    elements = _OpenElements()

    def end_node() -> None:
        text = "".join(pending)
        pending.clear()
        if text and not elements.hidden:
            nodes.append(text if elements.preformatted else _collapsed(text))

    position = 0
    while (markup := _MARKUP.search(source, position)) is not None:
        pending.append(_unescape(source[position : markup.start()]))
        position = markup.end()
        if source.startswith("/>", position):  # names no element: not even the end of a node
            position += 2
            continue
        end_node()
        if (tag := _NAME.match(source, position)) is not None:
            position = _pass_tag(source, tag, elements)
        elif source.startswith("!--", position):
            close = _COMMENT_END.search(source, position + 1)  # "<!-->" is a whole comment
            position = len(source) if close is None else close.end()
        elif source.startswith("![CDATA[", position):
            section, position = _up_to(source, "]]>", position + len("![CDATA["))
            nodes.append(section if elements.preformatted else _collapsed(section))
        else:
            _, position = _up_to(source, ">", position)
    pending.append(_unescape(source[position:]))
    end_node()
    return "".join(nodes)


def _collapsed(text: str) -> str:
    """Return the one character that counts for a node of ASCII white space; any other text as it is."""
    if text.strip(" \n\t\f\r"):
        return text
    return "\n" if "\n" in text else " "


def _unescape(text: str) -> str:
    return _REFERENCE.sub(_character, text) if "&" in text else text


def _character(reference: re.Match[str]) -> str:
    number, name = reference.groups()
    if name is not None:  # a name that HTML does not define stays, without its semicolon
        return html5.get(f"{name};", f"&{name}")
    return html.unescape(f"&#{number};") if len(number) <= _MAX_DIGITS else "\ufffd"


def _up_to(source: str, mark: str, start: int) -> tuple[str, int]:
    """Return the text before the next `mark`, and the position after it."""
    end = source.find(mark, start)
    return (source[start:], len(source)) if end < 0 else (source[start:end], end + len(mark))
