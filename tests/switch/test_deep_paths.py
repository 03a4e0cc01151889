"""Module paths of the original that are one level deeper than here."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tamis.stages.text.utils.constants import regex_url

NAMES = {
    "filters.fasttext.fasttext_filters": ("FastTextQualityFilter", "FastTextLangId"),
    "filters.heuristic.code.code": ("PythonCommentToCodeFilter", "PerExtensionFilter"),
    "filters.heuristic.repetition.repetition": ("RepeatedLinesFilter", "RepeatingTopNGramsFilter"),
    "filters.histogram.histogram": ("HistogramFilter",),
    "filters.token.token_count": ("TokenCountFilter",),
    "modifiers.fasttext.fasttext_label": ("FastTextLabelModifier",),
    "modifiers.string.c4": ("BoilerPlateStringModifier",),
    "modifiers.string.line_remover": ("LineRemover",),
    "modifiers.string.markdown_remover": ("MarkdownRemover",),
    "modifiers.string.newline_normalizer": ("NewlineNormalizer",),
    "modifiers.string.quotation_remover": ("QuotationRemover",),
    "modifiers.string.slicer": ("Slicer",),
    "modifiers.string.url_remover": ("UrlRemover",),
    "modifiers.unicode.unicode_reformatter": ("UnicodeReformatter",),
}


@pytest.mark.parametrize("path", NAMES)
def test_a_deeper_path_has_the_same_names(path: str) -> None:
    module = importlib.import_module(f"tamis.stages.text.{path}")
    parent = importlib.import_module(f"tamis.stages.text.{path.rpartition('.')[0]}")
    for name in NAMES[path]:
        assert getattr(module, name) is getattr(parent, name)


def test_a_deeper_path_may_be_the_first_import() -> None:
    paths = ("modifiers.string.slicer", "filters.token.token_count")
    code = "; ".join(f"import tamis.stages.text.{path}" for path in paths)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_urls_are_found() -> None:
    text = "see https://a.example/b?c=d%20e and http://x.org"
    assert regex_url.findall(text) == ["https://a.example/b?c=d%20e", "http://x.org"]
