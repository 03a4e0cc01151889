"""Filters for source code, and the scanners behind them."""

from __future__ import annotations

import io
import sys
import tokenize
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.errors import MissingExtra, UsageError
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic.code import (
    AlphaFilter,
    GeneralCommentToCodeFilter,
    HTMLBoilerplateFilter,
    NumberOfLinesOfCodeFilter,
    PerExtensionFilter,
    PythonCommentToCodeFilter,
    TokenizerFertilityFilter,
    XMLHeaderFilter,
)
from tamis.stages.text.filters.heuristic.comments import SCANNERS, comment_chars, python_comments
from tamis.stages.text.filters.heuristic.visible_text import visible_text
from tamis.tasks import DocumentBatch
from tests.support.limits import examples

PYTHON = '''#!/usr/bin/env python
"""Module."""
import os  # why

def f(x):
    r"""Doc
    of two lines."""
    y = "no # comment"
    z = {"a": 1,
         "b": \'\'\'not a docstring\'\'\'}
    "".join(x)
    return y + \\
        "not alone"
'''


def test_comments_and_docstrings_of_python() -> None:
    n_comment, n_docstring = python_comments(PYTHON)
    assert n_comment == len("#!/usr/bin/env python") + len("# why")
    assert n_docstring == len("Module.") + len("Doc\n    of two lines.")
    assert PythonCommentToCodeFilter().score_document(PYTHON) == (n_comment + n_docstring) / len(PYTHON)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", (0, 0)),
        ("x = 'unclosed # no comment\ny # yes", (5, 0)),
        ('"""never closed', (0, 12)),
        ('"a" "b"', (0, 0)),
        ("'a'  # c", (3, 1)),
        ("'a\\'b'", (0, 4)),
        ("f(\n'x'\n)", (0, 0)),
        ("}}} 'x'\n'y'", (0, 1)),
    ],
)
def test_python_that_does_not_compile_has_a_score(source: str, expected: tuple[int, int]) -> None:
    assert python_comments(source) == expected


def test_the_scanner_finds_the_comments_that_the_tokenizer_finds() -> None:
    root = Path(__file__).parents[4]
    files = sorted((root / "src" / "tamis").rglob("*.py"))[:60]
    assert len(files) > 30
    for path in files:
        source = path.read_text()
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        expected = sum(len(t.string) for t in tokens if t.type == tokenize.COMMENT)
        assert python_comments(source)[0] == expected, path


@pytest.mark.parametrize(
    ("mime", "source", "expected"),
    [
        ("text/x-c", 'int a; // one\n/* two\n */ char *s = "// no";', len(" one") + 1 + len(" two\n ")),
        ("text/x-java", "char c = '\"'; // yes", len(" yes")),
        ("text/x-c", "/* never closed", len(" never closed")),
        ("application/javascript", "let s = `// no ${x}`; // yes", len(" yes")),
        ("text/x-go", "s := `/* no */`\n// yes", len(" yes")),
        ("text/x-shellscript", "#!/bin/sh\necho \"# no\" '# no' $# a#b # yes", len("!/bin/sh") + 1 + len(" yes")),
        ("text/x-shellscript", 'echo "a \\" # no" # yes', len(" yes")),
        ("text/x-ruby", "=begin\nall this\n=end\nx # yes", len("\nall this") + 1 + len(" yes")),
        ("text/x-ruby", "x\n=begin\nopen", len("\nopen")),
        ("text/x-python", 'x = \'# no\' # yes\n"""no"""', len(" yes")),
        ("text/html", "<p>a<!-- one --><!--two--></p>", len(" one ") + 1 + len("two")),
        ("text/xml", "<!-- open", len(" open")),
    ],
)
def test_comments_by_mime_type(mime: str, source: str, expected: int) -> None:
    assert comment_chars(source, mime) == expected
    assert GeneralCommentToCodeFilter(mime).score_document(source) == expected / len(source)


def test_an_unknown_mime_type_is_refused() -> None:
    with pytest.raises(UsageError, match=r"language must be one of .*text/x-c.*; got 'text/x-cobol'"):
        GeneralCommentToCodeFilter("text/x-cobol")


@settings(max_examples=examples(200), deadline=None)
@given(st.text(alphabet="ab \n\"'`#/*\\<!->=begind()"))
def test_scanners_never_fail_and_never_count_more_than_there_is(source: str) -> None:
    for mime in SCANNERS:
        assert 0 <= comment_chars(source, mime) <= len(source)
    assert 0 <= sum(python_comments(source)) <= len(source)
    assert len(visible_text(source)) <= len(source)


@pytest.mark.parametrize("piece", ['"', "'''", "/*", "//", "<!--", "<script>", "\n=begin", "\\", "'a'", "<a", '"\\'])
def test_scanners_are_linear_on_hostile_text(piece: str) -> None:
    source = piece * (400_000 // len(piece))  # a quadratic scanner would take minutes and run into the time limit
    for mime in ("text/x-c", "text/x-go", "text/x-shellscript", "text/x-ruby", "text/html", "text/x-python"):
        assert comment_chars(source, mime) <= len(source)
    python_comments(source)
    visible_text(source)


def test_visible_text_of_html() -> None:
    source = "<html><style>p {}</style><SCRIPT a='b'>if (a<b) x</script><p>A &amp; B</p><!-- no --> 1 < 2</html>"
    assert visible_text(source) == "A & B 1 < 2"
    assert visible_text("<script>never closed") == ""
    assert visible_text("a<!-- never closed <p>b</p>") == "a"
    assert visible_text("a<p title='never closed>b</p>") == "a"
    assert visible_text("<script/>a<!-->b</ x>c</>d<![if IE]>e<?php f?>") == "abcde"
    assert visible_text("<div>" * 100_000 + " x ") == " x "
    for reference in ("&#" + "1" * 5000, "&#" + "0" * 5000 + "65;", "&#x" + "f" * 5000 + ";"):
        assert visible_text(f"a{reference}b") == "a\ufffdb"
    long = "<p>" + "word " * 30 + "</p>"
    assert HTMLBoilerplateFilter().score_document(long) == 150 / 157
    assert HTMLBoilerplateFilter(min_lang_content_num_chars=151).score_document(long) == 0


ARTICLE = """
<!DOCTYPE html>
<html>
    <head>
        <title>Tide tables</title>
        <style>p { margin: 0 }</style>
    </head>
    <body>
        <h1>High water at the harbour</h1>
        <p>The tide turns twice a day, and boats with a deep keel wait for it.</p>
        <script>if (a < b) { count("<p>"); }</script>
        <p>Fish &amp; chips are sold at the pier.</p>
    </body>
</html>
"""
NAVIGATION = """
<!DOCTYPE html>
<html>
    <body>
        <div>
            <div>
                <ul>
                    <li><a href="/home">Home</a></li>
                    <li><a href="/news">News</a></li>
                    <li><a href="/about">About</a></li>
                </ul>
            </div>
        </div>
    </body>
</html>
"""
LISTING = "\n".join(f"        line {i}" for i in range(8))


@pytest.mark.parametrize(
    ("page", "n_chars"),  # what the original counts with beautifulsoup4 4.15
    [
        (ARTICLE, 151),
        (NAVIGATION, 28),
        (f"<html><body><pre>{LISTING}</pre>\n        <p>end</p></body></html>", 123),
        ('<p title="a > b">' + "word " * 30 + "<br>   <br>\t\n<br></p>", 152),
        (
            "<template>" + "unseen " * 20 + "</template><ruby>" + "text " * 25 + "<rt>reading</rt></ruby>"
            "<![CDATA[ data ]]>&nosuch; &nbsp;",
            140,
        ),
    ],
)
def test_indentation_of_html_is_not_content(page: str, n_chars: int) -> None:
    assert len(visible_text(page)) == n_chars
    one = HTMLBoilerplateFilter()
    assert one.score_document(page) == (n_chars / len(page) if n_chars >= 100 else 0)
    assert one.keep_document(one.score_document(page)) == (page is not NAVIGATION)


def run(one: Any, texts: list[str | None]) -> list[Any]:
    batch = DocumentBatch("", pa.table({"text": pa.array(texts, pa.string())}))
    every = ScoreFilter(one, score_field="s")
    kept = every.process(batch)
    scores: dict[int, Any] = {}
    for note in every._take_notes().drops:
        scores.update(zip(np.asarray(note.serials).tolist(), list(note.values), strict=True))
    left = iter(kept.column("s").to_pylist())
    return [scores[i] if i in scores else next(left) for i in range(len(texts))]


@pytest.mark.parametrize(
    ("one", "expected", "kept"),
    [
        (PythonCommentToCodeFilter(), [0.0, 0.0, 0.0], (False, False)),
        (GeneralCommentToCodeFilter("text/x-c"), [0.0, 0.0, 0.0], (False, False)),
        (NumberOfLinesOfCodeFilter(), [1, 1, 1], (False, False)),
        (XMLHeaderFilter(), [0, 0, 0], (True, True)),
        (AlphaFilter(), [0.0, 0.0, 0.0], (False, False)),
        (HTMLBoilerplateFilter(), [0.0, 0.0, 0.0], (False, False)),
        (PerExtensionFilter("Python", "py"), [0, 0, 0], (False, False)),
    ],
)
def test_empty_blank_and_null_texts_have_a_score(one: Any, expected: list[float], kept: tuple[bool, bool]) -> None:
    assert run(one, ["", "   ", None]) == expected
    assert [one.keep_document(s) for s in expected[:2]] == list(kept)


def test_lines_letters_and_headers() -> None:
    assert NumberOfLinesOfCodeFilter(2, 3).score_document("a\nb\n") == 3
    assert AlphaFilter().score_document("ab12") == 0.5
    assert run(
        XMLHeaderFilter(), ['<?xml version="1.0"?>', "x" * 100 + "<?xml version=", "é" * 86 + "<?xml version="]
    ) == [1, 0, 1]
    assert [one.keep_document(s) for one, s in ((NumberOfLinesOfCodeFilter(), 10), (AlphaFilter(), 0.25))] == [
        True,
        True,
    ]


def test_limits_by_extension() -> None:
    one = PerExtensionFilter("C++", "cpp")
    assert (one.name, one.score_document("int main() {\n  return 0;\n}\n")) == ("per_extension_filter", 1)
    assert one.score_document("a" * 1001) == 0
    assert one.score_document("a" * 101) == 0  # mean line length
    assert one.score_document("{}[]+-*/" * 5) == 0
    assert PerExtensionFilter("C++", "exe").score_document("int a;") == 0
    assert PerExtensionFilter("C#", "cs").score_document("class A;") == 1
    with pytest.raises(UsageError, match=r"code_meta\.csv has no language 'klingon'"):
        PerExtensionFilter("Klingon", "k")


def test_limits_from_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "meta.csv"
    path.write_text(
        "language,extension,Include,Long_line_threshold,Alphanum_threshold,Alpha filter\nx,a,1,5,,\nx,b,0,,,\n"
    )
    assert PerExtensionFilter("x", "a", str(path)).score_document("12345") == 1
    assert PerExtensionFilter("x", "a", str(path)).score_document("123456") == 0
    assert PerExtensionFilter("x", "b", str(path)).score_document("a") == 0
    path.write_text(
        "language,extension,Include,Long_line_threshold,Alphanum_threshold,Alpha filter\nx,a,1,nan,inf,-inf\n,\n"
    )
    assert PerExtensionFilter("x", "a", str(path)).score_document("-" * 5000) == 1  # no limits
    with pytest.raises(UsageError, match=r"has no language 'y'; it has: , x$"):
        PerExtensionFilter("y", "a", str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        PerExtensionFilter("x", "a", str(tmp_path / "absent.csv"))
    path.write_text("language\nx\n")
    with pytest.raises(UsageError, match="must have rows and the columns language, extension"):
        PerExtensionFilter("x", "a", str(path))


def test_fertility_by_a_sentencepiece_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Processor:
        def __init__(self, model_file: str) -> None:
            assert model_file.endswith("m.model")

        def encode(self, text: str) -> list[str]:
            return text.split()

    path = tmp_path / "m.model"
    one = TokenizerFertilityFilter(str(path))
    with pytest.raises(UsageError, match="is not a file"):
        one.model_check_or_download()
    path.write_bytes(b"")
    one.model_check_or_download()
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(MissingExtra, match=r"tamis\[sentencepiece\]"):
        one.load_tokenizer()
    monkeypatch.setitem(sys.modules, "sentencepiece", SimpleNamespace(SentencePieceProcessor=Processor))
    assert run(one, ["ab cd", "", None]) == [2.5, -1, -1]
    assert (one.keep_document(2.5), one.keep_document(2.4)) == (True, False)
    with pytest.raises(UsageError, match="path_to_tokenizer must be the path"):
        TokenizerFertilityFilter()


def test_vowel_signs_are_alphabetic() -> None:
    """Devanagari writes most vowels as signs, which are no letters: a page must not look like a table of numbers."""
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940"  # three letters, two vowel signs, one virama
    assert AlphaFilter().score_document(hindi) == pytest.approx(5 / 6)
    assert AlphaFilter().score_document("a\u0301b 12") == pytest.approx(2 / 6)  # an accent is no sign of an alphabet
    assert AlphaFilter().score_document("\u216b \u00b2") == pytest.approx(1 / 3)
