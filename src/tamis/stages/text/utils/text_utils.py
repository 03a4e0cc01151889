"""Words, sentences, paragraphs and n-grams of a text; comments of Python code."""

from __future__ import annotations

import ast
import io
import string
import tokenize
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from tamis.stages.text.filters.words import word_splitter
from tamis.stages.text.utils.languages import NAMES

T = TypeVar("T")
_WITH_DOCSTRING = {ast.ClassDef: 0, ast.FunctionDef: 1, ast.AsyncFunctionDef: 1, ast.Module: 2}
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def get_word_splitter(language: str) -> Callable[[str], list[str]]:
    """Return a function from text to words.

    It splits at spaces; Chinese (zh) and Japanese (ja) need the extra `lang`.
    """
    return word_splitter(language)


def get_paragraphs(document: str) -> list[str]:
    """Split a document into paragraphs at blank lines."""
    return document.split("\n\n")


def get_sentences(document: str) -> list[str]:
    """Return the lines that are not blank."""
    return [line for line in document.split("\n") if line.strip()]


def get_ngrams(input_list: Sequence[T], n: int) -> list[tuple[T, ...]]:
    """Return each run of `n` neighbours.

    >>> get_ngrams(["a", "b", "c"], 2)
    [('a', 'b'), ('b', 'c')]
    """
    return [tuple(input_list[i : i + n]) for i in range(len(input_list) - n + 1)] if n > 0 else []


def is_paragraph_indices_in_top_or_bottom_only(
    boilerplate_paragraph_indices: Sequence[int], num_paragraphs: int
) -> bool:
    """Return True if these paragraphs (ascending numbers) are one run at the beginning or end, and not all.

    >>> [is_paragraph_indices_in_top_or_bottom_only(i, 4) for i in ([0, 1], [3], [1, 2], [0, 3], [0, 1, 2, 3], [])]
    [True, True, False, False, False, False]
    """
    indices = list(boilerplate_paragraph_indices)
    if not indices or len(indices) == num_paragraphs:
        return False
    is_one_run = all(b == a + 1 for a, b in pairwise(indices))
    return is_one_run and (indices[0] == 0 or indices[-1] == num_paragraphs - 1)


def get_comments_and_docstring(
    source: str, comments: bool = True, clean_comments: bool = False
) -> tuple[str | None, str | None]:
    """Return (docstrings, comments) of Python code; None and a warning for those that invalid code hides."""
    docstrings: str | None = None
    text: str | None = "" if not comments else None
    try:
        docstrings = "\n".join(get_docstrings(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        warnings.warn(f"the code does not compile, so its docstrings are not found: {exc}", stacklevel=2)
    if comments:
        try:
            text = get_comments(source, clean=clean_comments)
        except (tokenize.TokenError, SyntaxError) as exc:
            warnings.warn(f"the code cannot be split into tokens, so its comments are not found: {exc}", stacklevel=2)
    return docstrings, text


def get_comments(s: str, clean: bool = False) -> str:
    r"""Return the concatenated comments of Python code; without their # if `clean`.

    >>> get_comments("x = 1  # one\n# two\n", clean=True)
    ' one two'
    """
    tokens = tokenize.generate_tokens(io.StringIO(s).readline)
    text = "".join(token.string for token in tokens if token.type == tokenize.COMMENT)
    return text.replace("#", "") if clean else text


def get_docstrings(source: str, module: str = "<string>") -> list[str]:
    """Return the docstrings of classes, then of functions, each by name, then that of the module."""
    docstrings = [(kind, name or module, text) for kind, name, text in _docstrings(source) if text]
    return [text for _, _, text in sorted(docstrings)]


def parse_docstrings(source: str) -> Iterator[tuple[ast.AST, str | None, str | None]]:
    """Yield (node, name, docstring) of the module and of each class and function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            yield node, getattr(node, "name", None), ast.get_docstring(node)


def _docstrings(source: str) -> Iterator[tuple[int, str | None, str | None]]:
    for node, name, text in parse_docstrings(source):
        yield next(rank for kind, rank in _WITH_DOCSTRING.items() if isinstance(node, kind)), name, text


def remove_punctuation(str_in: str) -> str:
    """Remove ASCII punctuation."""
    return str_in.translate(_PUNCTUATION)


def get_words(text: str) -> tuple[list[str], list[int]]:
    """Return the words in lower case without punctuation, and the position of each in that text.

    >>> get_words("Hello,  World!")
    (['hello', 'world'], [0, 7])
    """
    plain = remove_punctuation(text.lower())
    starts = [i for i, c in enumerate(plain) if c != " " and (i == 0 or plain[i - 1] == " ")]
    return [plain[a:b].strip() for a, b in pairwise([*starts, len(plain)])], starts


def get_language_name(lang_code: str) -> str:
    """Return the English name of a language, or the code itself if it is unknown here.

    >>> get_language_name("de"), get_language_name("pt-BR"), get_language_name("xx"), get_language_name("")
    ('German', 'Portuguese', 'xx', '')
    """
    name = NAMES.get(lang_code.lower().replace("_", "-").partition("-")[0])
    return lang_code if name is None else name.replace("_", " ").title()
