"""The published rule sets: their rules and limits, and what they keep, against plain-Python definitions."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.recipe.load import load_recipe
from tamis.stages.text.filters.c4 import C4Quality
from tamis.stages.text.filters.catalogue import find_sets, list_filters, rule_sets
from tamis.stages.text.filters.fineweb import FineWebQuality
from tamis.stages.text.filters.gopher import GopherQuality, GopherRepetition
from tamis.stages.text.filters.nemo_curator import HeuristicEnglish, HeuristicNonEnglish
from tamis.stages.text.filters.rule_set import RuleSet
from tamis.stages.text.filters.statistics import list_statistics
from tamis.tasks import DocumentBatch

ROOT = Path(__file__).parents[4]
RECIPES = ROOT / "src" / "tamis" / "recipe" / "presets"


def load_twin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("text_twin", ROOT / "tests" / "reference" / "text_twin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TWIN = load_twin()


def verdicts(made: RuleSet, texts: list[str | None]) -> list[str]:
    """Return the rule that drops each text, or an empty string."""
    kept: Any = DocumentBatch("", pa.table({"text": pa.array(texts, pa.string())}))
    found: dict[int, str] = {}
    numbers = list(range(len(texts)))  # of the documents that a stage gets
    for stage in made.decompose():
        kept.number(0)
        kept = stage.process(kept)
        dropped = {int(i): n.reason for n in stage._take_notes().drops for i in n.serials}
        found |= {numbers[i]: reason for i, reason in dropped.items()}
        numbers = [number for i, number in enumerate(numbers) if i not in dropped]
    assert kept.num_items == len(texts) - len(found)
    return [found.get(i, "") for i in range(len(texts))]


def gopher_quality(text: str) -> str:
    words = text.split()
    real = [w for w in words if any(c not in TWIN.SYMBOLS for c in w)]
    lines = text.splitlines()
    if len(real) < 50:
        return "gopher_short_doc"
    if len(real) > 100000:
        return "gopher_long_doc"
    mean = sum(map(len, real)) / len(real)
    if mean < 3:
        return "gopher_below_avg_threshold"
    if mean > 10:
        return "gopher_above_avg_threshold"
    if text.count("#") / len(words) > 0.1:
        return "gopher_too_many_hashes"
    if (text.count("...") + text.count("…")) / len(words) > 0.1:
        return "gopher_too_many_ellipsis"
    if sum(line.lstrip().startswith(("•", "-")) for line in lines) / len(lines) > 0.9:
        return "gopher_too_many_bullets"
    if sum(line.rstrip().endswith(("...", "…")) for line in lines) / len(lines) > 0.3:
        return "gopher_too_many_end_ellipsis"
    if sum(any(map(str.isalpha, w)) for w in words) / len(words) < 0.8:
        return "gopher_below_alpha_threshold"
    return "" if len({*words} & {*TWIN.COMMON_WORDS}) >= 2 else "gopher_enough_stop_words"


def gopher_repetition(text: str) -> str:
    if not text:
        return "empty"
    paragraphs, lines = re.split("\n{2,}", text.strip()), re.split("\n+", text)
    for name, pieces in (("para", paragraphs), ("line", lines)):
        n, n_chars = TWIN.duplicates(pieces)
        if n / len(pieces) > 0.3:
            return f"dup_{name}_frac"
        if n_chars / len(text) > 0.2:
            return f"dup_{name}_char_frac"
    words = text.split()
    for n, limit in ((2, 0.2), (3, 0.18), (4, 0.16)):
        if len(words) >= n:
            gram, count = TWIN.top_gram(words, n)
            if len(gram) * count / len(text) > limit:
                return f"top_{n}_gram"
    for n, limit in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10)):
        if TWIN.gopher_duplicate_chars(words, n) / len(text) > limit:
            return f"duplicated_{n}_n_grams"
    return ""


def fineweb(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return "empty"
    if sum(line[-1] in TWIN.TERMINAL for line in lines) / len(lines) < 0.12:
        return "line_punct_ratio"
    if sum(len(line) <= 30 for line in lines) / len(lines) > 0.67:
        return "short_line_ratio"
    if TWIN.duplicates(lines)[1] / len(text.replace("\n", "")) > 0.01:
        return "char_dup_ratio"
    return "list_ratio" if text.count("\n") / len(text.split()) > 0.3 else ""


def c4(text: str) -> str:
    if not text.strip(" \t\n\f\r"):
        return "text_empty"
    found = TWIN.c4(text)
    for rule in ("lorem_ipsum", "curly_bracket"):
        if found[f"c4_{rule}"]:
            return rule
    return "too_few_sentences" if found["c4_sentences"] < 5 else ""


GOOD = " ".join(f"the weather of {day} and that of day {i} have something with it." for i, day in enumerate("abcdefg"))
PROSE = """The harbour was quiet when the first boats came in, and nobody on the pier spoke above a whisper.
Maria counted crates of herring while her brother argued with a customs officer about the price of salt.

They had sailed through a night of rain that soaked every rope, blanket and loaf of bread they owned.
Still, the catch would be enough to pay for new sails, which is more than most families could hope for.

Behind them an old man with one good eye laughed at some joke that only gulls seemed to understand!
"""
TEXTS: list[str | None] = [
    PROSE,
    None,
    "",
    "  ",
    GOOD,
    GOOD.replace("the", "xxx").replace("that", "xxx").replace("and", "xxx").replace("of", "x").replace("have", "xxx"),
    "# " * 20 + GOOD,
    "... " * 20 + GOOD,
    "\n".join("- " + line for line in GOOD.split(".")),
    "a b c d " * 30,
    "pneumonoultramicroscopic " * 60,
    "1 2 3 4 5 6 7 8 9 abc " * 30,
    "One line that is here.\n" * 20,
    "A sentence of four words. " * 6,
    "Lorem ipsum dolor sit amet. " * 6,
    "function() { return these words. }",
    "\n\n".join(f"Paragraph number {i} says something else entirely, does it not?" for i in range(20)),
    "short\n" * 3 + "x",
]
DEFINITIONS: list[tuple[RuleSet, Any]] = [
    (GopherQuality(), gopher_quality),
    (GopherRepetition(), gopher_repetition),
    (FineWebQuality(), fineweb),
    (C4Quality(), c4),
]


@pytest.mark.parametrize(("made", "definition"), DEFINITIONS, ids=lambda v: getattr(v, "name", ""))
def test_each_text_goes_with_the_rule_that_the_definition_names(made: RuleSet, definition: Any) -> None:
    found = verdicts(made, TEXTS)
    assert found == ["text_null" if t is None and made.name == "c4_quality" else definition(t or "") for t in TEXTS]
    assert "" in found
    assert len({*found}) > 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                [
                    "the",
                    "be",
                    "of",
                    "cat",
                    "Lorem",
                    "ipsum",
                    "sat.",
                    "...",
                    "#",
                    "-",
                    "•",
                    "\n",
                    "\n\n",
                    "{",
                    "日本語。",
                    "words!",
                    "x" * 40,
                ]
            ),
            max_size=150,
        ).map(" ".join),
        max_size=4,
    )
)
def test_any_text_goes_with_the_rule_that_the_definition_names(texts: list[str | None]) -> None:
    for made, definition in DEFINITIONS:
        assert verdicts(made, texts) == [definition(t or "") for t in texts], made.name


def test_the_heuristic_sets_have_the_filters_of_the_original_in_its_order() -> None:
    english = [one.name for one in HeuristicEnglish().filters()]
    assert english == [
        "alpha_numeric",
        "symbol_to_word",
        "numbers_ratio",
        "urls_ratio",
        "white_space",
        "parentheses_ratio",
        "boilerplate_string_ratio",
        "repeated_lines",
        "repeated_paragraphs",
        "repeated_lines_char",
        "repeated_paragraphs_char",
        "word_count",
        "punctuation",
        "words_without_alphabets",
        "common_english_words",
        "mean_word_length",
        "max_word_length",
        "ellipsis",
        "repeating_top_2grams",
        "repeating_top_3grams",
        "repeating_top_4grams",
        "repeating_dup_5gram",
        "repeating_dup_6gram",
        "repeating_dup_7gram",
        "repeating_dup_8gram",
        "repeating_dup_9gram",
        "repeating_dup_10gram",
        "bullet_ratio",
    ]
    only_english = {"alpha_numeric", "words_without_alphabets", "common_english_words"}
    assert [one.name for one in HeuristicNonEnglish().filters()] == [n for n in english if n not in only_english]


def test_a_document_goes_with_the_first_filter_that_drops_it_alone() -> None:
    expected = []
    for text in TEXTS:
        reason = ""
        for one in HeuristicEnglish().filters():
            if not one.keep_document(one.score_document(text or "")):
                reason = one.name
                break
        expected.append(reason)
    assert verdicts(HeuristicEnglish(), TEXTS) == expected


def test_a_rule_can_be_changed_or_left_out() -> None:
    assert verdicts(GopherQuality(min_doc_words=None, min_stop_words=None), ["some words here"]) == [""]
    assert verdicts(C4Quality(min_num_sentences=1), ["One sentence of words."]) == [""]
    assert verdicts(
        FineWebQuality(char_duplicates_ratio=None, new_line_ratio=None),
        ["A line that is long enough, is it not?\n" * 3],
    ) == [""]
    assert [f.name for f in GopherRepetition(top_n_grams=[[2, 0.5]], dup_n_grams=[]).filters()][-1] == "top_2_gram"
    with pytest.raises(UsageError, match="every rule is switched off"):
        C4Quality(None, False, False)
    with pytest.raises(UsageError, match="minimum must be a number, got 'five'"):
        C4Quality("five")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_n_grams": [(2.5, 0.2)]}, r"top_n_grams: n must be a whole number from 2 to 10, got 2\.5"),
        ({"dup_n_grams": [(11, 0.2)]}, "dup_n_grams: n must be a whole number from 2 to 10, got 11"),
        ({"dup_n_grams": [(1, 0.2)]}, "from 2 to 10, got 1"),
        ({"top_n_grams": [("2", 0.2)]}, "from 2 to 10, got '2'"),
        ({"top_n_grams": [(float("inf"), 0.2)]}, "from 2 to 10, got inf"),
        ({"top_n_grams": [2, 3]}, "top_n_grams must be pairs of n and a limit"),
        ({"top_n_grams": [(2, "much")]}, "maximum must be a number, got 'much'"),
    ],
)
def test_n_grams_without_a_kernel_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        GopherRepetition(**arguments)


def test_every_rule_names_statistics_that_exist() -> None:
    known = list_statistics()
    for parts in rule_sets().values():
        for part in parts:
            for one in part().filters():
                assert set(one.statistics) <= set(known), one.name


def test_sets_by_name() -> None:
    assert find_sets("gopher") == [GopherQuality, GopherRepetition]
    assert find_sets("heuristic_english + c4") == [HeuristicEnglish, C4Quality]
    with pytest.raises(UsageError, match="'gohper'; did you mean gopher"):
        find_sets("c4+gohper")


def test_the_catalogue_has_every_filter_with_its_defaults() -> None:
    found = {info.name: info for info in list_filters()}
    assert (
        len(found) == 18 + 6 + 8 + 4 + 1 + 1
    )  # strings, repetition, code, models and histogram, FineWeb, language rules
    assert found["WordCountFilter"].parameters == "min_words=50, max_words=100000, lang='en'"
    assert found["SubstringFilter"].parameters == "substring, position"
    assert found["FastTextLangId"].module == "fasttext"
    assert all(entry.about for entry in found.values())


@pytest.mark.parametrize("name", ["gopher", "c4", "heuristic_english", "heuristic_non_english"])
def test_each_set_is_a_recipe(name: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"n": i, "body": t}) + "\n" for i, t in enumerate(TEXTS)))
    changes = {"input": str(tmp_path / "in.jsonl"), "output": str(tmp_path / "out"), "text_field": "body"}
    recipe = load_recipe(RECIPES / f"{name}.yaml", overrides=changes)
    pipeline = Pipeline(name, stages=recipe.stages)  # type: ignore[arg-type]
    result = pipeline.execute(InProcessExecutor(), memory="1GB")
    left = list(enumerate(TEXTS))
    for made in find_sets(name):
        reasons = verdicts(made(), [t for _, t in left])
        left = [pair for pair, reason in zip(left, reasons, strict=True) if not reason]
    lines = [
        json.loads(line) for p in sorted((tmp_path / "out").glob("*.jsonl")) for line in p.read_text().splitlines()
    ]
    assert result.exit_code == 0
    assert [d["n"] for d in lines] == [i for i, _ in left]
    assert left
