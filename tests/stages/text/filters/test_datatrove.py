"""Gopher, C4 and FineWeb against datatrove, document by document and value by value.

docs/explanation/datatrove.md lists the differences. datatrove's filters take a tokenizer; here they get Tamis' words
and sentences,
so that only the rules are compared.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("datatrove", reason="no datatrove: pip install datatrove regex")
pytest.importorskip("regex", reason="datatrove's tokenizers need it: pip install regex")

ROOT = Path(__file__).parents[4]


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / "peers" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


THEIRS, OURS = load("datatrove_verdicts"), load("tamis_verdicts")
SETS = sorted(OURS.SETS)
FILTERS = {name: kind(language=THEIRS.SPLITTING) for name, kind in THEIRS.FILTERS.items()}
CITATION = re.compile(r"\[\d*]|\[edit]|\[citation needed]")

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
PROSE = " ".join(
    f"The weather of {day} and that of day {i} have something to do with it." for i, day in enumerate(DAYS)
)
LINES = "\n".join(
    f"Line {i} of the text says that {day} will be dry and the day after will not." for i, day in enumerate(DAYS)
)


def repeated(share: float) -> str:
    """Return words of nine letters, with a block of 360 words whose second occurrence is this share of the text."""
    words = [f"word{i:05d}" for i in range(round(0.9 * 360 / share) - 360)]
    return " ".join(words[:360] + words)


TEXTS = [
    PROSE,
    LINES,
    f"{PROSE}\n\n{LINES}",
    "",
    "   ",
    "\n\n",
    "...",
    "- - -",
    "one",
    "the be",
    *(PROSE.replace("the", "ze").replace(word, "xx") for word in ("that", "of", "and", "have", "to", "with")),
    "# " * 11 + PROSE,
    "# " * 14 + PROSE,
    "… " * 14 + PROSE,
    "... " * 14 + PROSE,
    "word... " * 60,
    "\n".join("- " + line for line in LINES.split("\n")),
    "\n".join("  • " + line for line in LINES.split("\n")),
    "\n".join("* " + line for line in LINES.split("\n")),
    "\n".join(line + "..." for line in LINES.split("\n")),
    "\n".join(line + " …  " for line in LINES.split("\n")),
    "a b c d " * 30,
    "pneumonoultramicroscopic " * 60,
    "1 2 3 4 5 6 7 8 9 abc " * 30,
    "0 " * 60,
    "\x00\x01 " * 60 + PROSE,
    "１ — ” » " * 20 + PROSE,
    "One line that is here.\n" * 20,
    "One paragraph that is here.\n\n" * 20,
    f"{PROSE}\n\n\n{PROSE}\n\n{LINES}",
    f"\n\n{LINES}\n\n{LINES}\n",
    "\n\n".join([PROSE, PROSE, *DAYS]),
    "\n".join([PROSE, PROSE, *DAYS]),
    *(repeated(share) for share in (0.155, 0.145, 0.135, 0.125, 0.115, 0.105, 0.095)),
    "A sentence of four words. " * 6,
    "A sentence of four words.\n" * 6,
    "Lorem ipsum dolor sit amet. " * 6,
    f"{LINES}\nA line with lOREM IPSUM in it.",
    f"{LINES}\nA line with lorem ipsum in it",
    f"{LINES}\nA line with JavaScript in it.",
    "It is javascript that is here.\n" * 9,
    f"{LINES}\nA bracket {{ is in it.\nA line with lorem ipsum in it.",
    f"{LINES}\nA bracket {{ is in it",
    f"{LINES}\nJavaScript has a bracket {{ too.",
    "Our Privacy Policy is here.\nThey use cookies and so do we.\n" * 5,
    "x" * 1001 + " is a word.\n" + LINES,
    "x" * 1000 + " is a word.\n" + LINES,
    "He said one two three...\n" * 9,
    'He said "one two three"\n' * 9,
    "One two three.\u2028" * 6,
    "One two three.\x1c" * 6,
    "One two three.\x85" * 6,
    "One two three.\x0b" * 6,
    "One two three.\r\n" * 6,
    "Two words.\n" * 9,
    "What is that? (It is one.) Well! Then 3.14 and so on.\n" * 3,
    "Hello big world. [1]\n" * 9,
    "Hello big world.[citation needed]\n" * 9,
    "Hello big world.[12][٣]\n" * 9,
    "短い行。\n" * 20,
    "यह एक पंक्ति है।\n" * 12,
    "LOREM İPSUM is here now.\n" * 9,
    "JAVAſCRIPT and cooKies are here.\n" * 9,
    "ends in a mark.\nends in none\n" * 8,
    "short\n" * 7 + "a line that is clearly longer than thirty characters.\n" * 3,
    "\n".join(f"{i}. item" for i in range(40)),
    "\n".join(f"somewhatlongword{i} anotherlongword{i}." for i in range(40)),
]


def differences(texts: list[str]) -> list[tuple[str, str, str, str]]:
    """(set, text, our verdict, datatrove's) where they differ."""
    found = []
    for name in SETS:
        for text, (ours, _) in zip(texts, OURS.judged(OURS.SETS[name](), texts), strict=True):
            theirs = THEIRS.verdict(FILTERS[name], text)
            if ours != theirs:
                found.append((name, text, ours, theirs))
    return found


def value_differences(texts: list[str]) -> list[tuple[str, str, str]]:
    """(set, rule, text) where the rule's value is another one in datatrove."""
    found = []
    for name in SETS:
        for text, (verdict, values) in zip(texts, OURS.judged(OURS.SETS[name](), texts), strict=True):
            for rule, value in OURS.comparable(name, text, verdict, values).items():
                if not THEIRS.same_value(name, rule, value, text):
                    found.append((name, rule, text))
    return found


def test_literal_texts() -> None:
    assert differences(TEXTS) == []


def test_literal_texts_reach_every_verdict() -> None:
    """Otherwise the test above would say little."""
    for name, kind in OURS.SETS.items():
        reached = {verdict for verdict, _ in OURS.judged(kind(), TEXTS)}
        not_reached = {rule.name for rule in kind().filters()} - reached
        assert not_reached == ({"gopher_long_doc"} if name == "gopher_quality" else set())
        assert "" in reached


def test_values_of_literal_texts() -> None:
    assert value_differences(TEXTS) == []


def test_a_value_that_differs_is_noticed() -> None:
    n_words = len(PROSE.split())
    assert THEIRS.same_value("gopher_quality", "gopher_short_doc", n_words, PROSE)
    assert not THEIRS.same_value("gopher_quality", "gopher_short_doc", n_words - 1, PROSE)
    assert not THEIRS.same_value("gopher_quality", "gopher_short_doc", n_words + 1, PROSE)
    assert not THEIRS.same_value("gopher_repetition", "top_2_gram", 0.0, PROSE)


def test_documentation_of_this_repository() -> None:
    """Real Markdown in windows of 40 lines: lists, tables, code and prose."""
    windows = []
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        lines = CITATION.sub("", path.read_text(encoding="utf-8")).split("\n")
        windows += ["\n".join(lines[k : k + 40]) for k in range(0, len(lines), 20)]
    assert len(windows) > 50
    assert differences(windows) == []


WORDS = """the be to of and that have with weather of water 12 3.14 # ... … • - — １ \0 é 漢字 ß Sentences end here.
    Really? Yes! " ' ) { lorem ipsum javascript use cookies privacy policy"""
BREAKS = ["\n", "\n\n", "\n- ", "\n• ", "...\n", ".\n", ".\n\n", "\r\n", "\u2028", "\x85", "\t", "\u3000"]
PIECES = st.sampled_from([*WORDS.split(), *BREAKS, "lorem ipsum", "use cookies", "x" * 40])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=60), min_size=1, max_size=6), st.integers(1, 5))
def test_made_up_texts(parts: list[list[str]], times: int) -> None:
    text = "\n".join(" ".join(part) for part in parts * times)
    assert differences([text]) == []
    assert value_differences([text]) == []


def test_citations_inside_a_line() -> None:
    """The documented difference: datatrove takes citations out first, here they count except at the end of a line."""
    sentences = "Alpha beta gamma.[1] Delta epsilon zeta.\n" * 3
    phrase = "We use[edit] cookies here too.\n" * 6
    assert differences([sentences, phrase]) == [
        ("c4_quality", sentences, "too_few_sentences", ""),
        ("c4_quality", phrase, "", "too_few_sentences"),
    ]
    assert differences([CITATION.sub("", sentences), CITATION.sub("", phrase)]) == []


@pytest.mark.corpus
def test_corpus() -> None:
    shared = Path(os.environ.get("TAMIS_SHARED", ROOT.parent / "shared"))
    part = shared / "corpus" / "part-000.jsonl.zst"
    if not part.exists():
        pytest.skip("the shared corpus is absent; set TAMIS_SHARED to the folder that holds it")
    import zstandard

    with open(part, "rb") as file:
        head = zstandard.ZstdDecompressor().stream_reader(file).read(4_000_000)
    texts = [json.loads(line)["text"] for line in head.split(b"\n")[:300]]
    assert len(texts) == 300
    assert differences(texts) == []
    assert value_differences(texts[::20]) == []
