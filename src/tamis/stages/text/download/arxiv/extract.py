r"""ArxivExtractor: the running text of a paper, as TeX, without what surrounds it.

Comments, the preamble, the bibliography and appendices go; the author's own macros without arguments are put in place.
"""

from __future__ import annotations

import re
from typing import Any

from tamis.stages.text.download.arxiv.comments import without_comments
from tamis.stages.text.download.base.extract import DocumentExtractor

_BODY = re.compile(r"(?s)\\begin\{document\}(.*?)(?:\\end\{document\}|\Z)")
_FIRST = re.compile(r"\\begin\{abstract\}|\\(?:section|chapter)\*?\s*(?:\[[^\]\n]{0,200}\])?\{")
_LAST = re.compile(
    r"(?i)\\appendix\b|\\begin\{(?:references|thebibliography|appendices)\}|\\bibliography\{|\\printbibliography\b"
)
_MACRO = re.compile(
    r"\\(?:(?:re)?newcommand\*?|providecommand\*?|DeclareMathOperator\*?)\s*(?:\{\s*(\\[A-Za-z]+)\s*\}|(\\[A-Za-z]+))\s*(?=\{)"
    r"|\\def\s*(\\[A-Za-z]+)\s*(?=\{)"
)
# Each is looked up among the macros: one pattern of all macros would try every one of them at every place.
_COMMAND = re.compile(r"\\[A-Za-z]+")
_MOST_GROWTH = 2.0


class ArxivExtractor(DocumentExtractor):
    """Takes the TeX files of a paper, gives one text."""

    def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
        files = [without_comments(text) for text in record["content"] or ()]
        macros: dict[str, str] = {}
        for text in files:
            macros.update(find_macros(text))
        parts = [running_text(text) for text in files]
        text = "\n\n".join(part for part in parts if part)
        text = re.sub(r"\n{3,}", "\n\n", put_in_macros(text, macros)).strip()
        if not text:
            self._skip("papers without running text")
            return None
        return {"text": text, "id": record.get("id"), "source_id": record.get("source_id")}

    def input_columns(self) -> list[str]:
        return ["id", "source_id", "content"]

    def output_columns(self) -> list[str]:
        return ["text", "id", "source_id"]


def running_text(text: str) -> str:
    r"""Return the text from the abstract or first heading to the bibliography or appendix.

    Returns all of a file that has no preamble or heading.

    >>> running_text(r"\documentclass{x}\begin{document}\title{T}\section{A}Text.\bibliography{b}\end{document}")
    '\\section{A}Text.'
    """
    body = _BODY.search(text)
    if body is not None:
        text = body[1]
    elif re.search(r"\\document(class|style)\b", text):
        return ""
    first = _FIRST.search(text)
    if first is not None:
        text = text[first.start() :]
    last = _LAST.search(text)
    return (text[: last.start()] if last is not None else text).strip()


def find_macros(text: str) -> dict[str, str]:
    r"""Return the macros without arguments and their expansions.

    >>> find_macros(r"\newcommand{\eg}{e.g.} \def\R{\mathbb{R}} \newcommand{\two}[1]{#1}")
    {'\\eg': 'e.g.', '\\R': '\\mathbb{R}'}
    """
    macros = {}
    for match in _MACRO.finditer(text):
        value = _braced(text, match.end())
        name = match[1] or match[2] or match[3]
        if value is not None and "#" not in value and name not in value:
            macros[name] = rf"\operatorname{{{value}}}" if "DeclareMathOperator" in match[0] else value
    return macros


def put_in_macros(text: str, macros: dict[str, str]) -> str:
    """Replace each macro in `text`, twice over (macros use macros).

    As it was where that would make it much longer.
    """
    if not macros:
        return text
    limit = _MOST_GROWTH * len(text) + 10_000
    for _ in range(2):
        growth = sum(len(macros.get(name, name)) - len(name) for name in _COMMAND.findall(text))
        if len(text) + growth > limit:
            return text
        text = _COMMAND.sub(lambda m: macros.get(m[0], m[0]), text)
    return text


def _braced(text: str, at: int, longest: int = 2000) -> str | None:
    """Return the text between the brace at `at` and its partner."""
    depth = 0
    for i in range(at, min(len(text), at + longest)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return text[at + 1 : i]
    return None
