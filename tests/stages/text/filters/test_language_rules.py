"""Limits and stop words by language: the same verdicts as the sets with these limits, language by language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis.errors import UsageError
from tamis.stages.text.filters.gopher import GopherQuality
from tamis.stages.text.filters.language_rules import LanguageRules, StopWordsFilter
from tamis.tasks import DocumentBatch
from tests.support.command import tamis

GERMAN = "Der Turm auf dem Berg wurde in dem Jahr erbaut und die Stadt hat ihn bis heute nicht verkauft. " * 6
ENGLISH = "The tower on the hill was built in that year and the town has not sold it to anybody to this day. " * 6
CHINESE = "这座塔是在那一年建的，它的名字来自河流。" * 8
TABLE: dict[str, Any] = {
    "default": {"gopher_repetition": None, "fineweb_quality": None},
    "deu_Latn": {"stop_words": ["der", "die", "und"], "gopher_quality": {"min_doc_words": 20}},
    "zho_Hans": {
        "stop_words": ["的", "是", "在"],
        "spaces": False,
        "gopher_quality": {"min_doc_words": None, "max_avg_word_length": None, "min_stop_words": 3},
    },
}


def batch(*rows: tuple[str, str]) -> DocumentBatch:
    return DocumentBatch(data=pa.table({"text": [t for t, _ in rows], "language": [label for _, label in rows]}))


def kept(stage: LanguageRules, *rows: tuple[str, str]) -> list[str]:
    return [str(v) for v in stage.process(batch(*rows)).texts("language").to_pylist()]


def test_each_language_has_its_limits_and_stop_words(tmp_path: Path) -> None:
    path = tmp_path / "limits.yaml"
    path.write_text(json.dumps(TABLE))
    rows = [(GERMAN, "deu_Latn"), (ENGLISH, "deu_Latn"), (ENGLISH, "eng_Latn"), (GERMAN, "eng_Latn")]
    for table in (TABLE, str(path)):
        stage = LanguageRules(table)
        assert kept(stage, *rows, (CHINESE, "zho_Hans")) == ["deu_Latn", "eng_Latn", "zho_Hans"]
        drops = stage._take_notes().drops
        assert [(d.reason, d.values, d.threshold) for d in drops] == [
            ("gopher_enough_stop_words", [0], {"min_stop_words": 2}),
            ("gopher_enough_stop_words", [0], {"minimum": 2}),
        ]


def test_without_a_default_other_languages_go() -> None:
    stage = LanguageRules({"eng_Latn": {"gopher_repetition": None, "fineweb_quality": None}})
    assert kept(stage, (ENGLISH, "[0.9, 'eng_Latn']"), (GERMAN, "[0.9, 'deu_Latn']")) == ["[0.9, 'eng_Latn']"]
    assert stage._take_notes().drops[-1].reason == "language_not_in_table"
    assert "language_not_in_table" in [rule.name for rule in stage.rules()]
    assert "language_not_in_table" not in [rule.name for rule in LanguageRules(TABLE).rules()]


def test_verdicts_are_those_of_the_set_alone() -> None:
    texts = [ENGLISH[:n] for n in (10, 100, 230, 260, 400)] + [GERMAN, "# # # " * 60, "", "word " * 60]
    stage = LanguageRules({"x": {"gopher_repetition": None, "fineweb_quality": None}})
    alone = GopherQuality().decompose()[0]
    data = batch(*((text, "x") for text in texts))
    expected: Any = alone.process(batch(*((text, "x") for text in texts)))
    assert stage.process(data).texts("text").to_pylist() == expected.texts("text").to_pylist()


def test_a_default_may_stand_beside_the_table() -> None:
    english = {"gopher_repetition": None, "fineweb_quality": None}
    assert kept(LanguageRules(default=english), (ENGLISH, "x"), (GERMAN, "y")) == ["x"]
    own = {"deu": {"stop_words": ["der", "und"], **english}}
    assert kept(LanguageRules(own, english), (ENGLISH, "x"), (GERMAN, "y"), (GERMAN, "deu")) == ["x"]
    own["deu"]["stop_words"] = ["und", "auf"]
    assert kept(LanguageRules(own, english), (ENGLISH, "x"), (GERMAN, "y"), (GERMAN, "deu")) == ["x", "deu"]


def test_stop_words_of_a_language_count_where_the_default_has_none() -> None:
    default = {"gopher_quality": {"min_stop_words": None}, "gopher_repetition": None, "fineweb_quality": None}
    stage = LanguageRules({"default": default, "deu": {"stop_words": ["der", "den", "das"]}})
    assert kept(stage, (GERMAN, "deu"), (ENGLISH, "deu"), (GERMAN, "nld")) == ["nld"]
    stage = LanguageRules({"default": default, "deu": {"stop_words": ["Der", "und", "hat"]}})
    assert kept(stage, (GERMAN, "deu"), (ENGLISH, "deu"), (GERMAN, "nld")) == ["deu", "nld"]


def test_a_set_that_is_null_is_left_out() -> None:
    stage = LanguageRules({"x": {"gopher_repetition": None, "gopher_quality": None, "fineweb_quality": None}})
    assert kept(stage, ("a", "x")) == ["x"]
    assert stage.rules()[0].name == "language_not_in_table"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "expected limits by language"),
        (None, "expected limits by language"),
        ({"deu": 3}, "deu: expected parameters by rule set"),
        ({"deu": {"gopher": {}}}, "'gopher' is none of gopher_repetition"),
        ({"deu": {"gopher_quality": 3}}, "expected parameters or null"),
        ({"deu": {"gopher_quality": {"min_words": 3}}}, "deu: gopher_quality has no parameter min_words"),
        ({"deu": {"stop_words": "der"}}, "deu: stop_words: expected a list"),
        ("missing.yaml", "missing.yaml"),
    ],
)
def test_a_wrong_table_is_named(table: Any, message: str) -> None:
    with pytest.raises(Exception, match=message) as error:
        LanguageRules(table)
    assert isinstance(error.value, (UsageError, ValueError))


def test_stop_words_count_once_each() -> None:
    one = StopWordsFilter(["der", "und"])
    assert [one.score_document(text) for text in ("der der", "der und Der", "DER", "")] == [1, 2, 0, 0]
    assert StopWordsFilter(["的"], 1, spaces=False).score_document("我的") == 1


def test_one_set_of_limits_for_all_counts_scores_like_the_sets() -> None:
    stage = LanguageRules({"default": {"gopher_repetition": None, "fineweb_quality": None}})
    alone = GopherQuality().decompose()[0]
    assert stage.rules() == alone.rules()
    scores: list[str] = []
    stage._open_notes(lambda name, *_: scores.append(name))
    assert stage.process(batch((ENGLISH, "x"), ("short", "y"))).num_items == 1
    assert [d.reason for d in stage._take_notes().drops] == ["gopher_short_doc"]
    assert scores[:2] == ["gopher_short_doc", "gopher_long_doc"]


def test_a_curation_takes_the_table(tmp_path: Path) -> None:
    (tmp_path / "limits.yaml").write_text(json.dumps(TABLE))
    rows = [{"text": GERMAN, "language": "deu_Latn"}, {"text": ENGLISH, "language": "deu_Latn"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"name: r\ninput: {tmp_path}/in.jsonl\noutput: {tmp_path}/out\nsteps:\n"
        f"  - language_rules: {{table: {tmp_path}/limits.yaml}}\n"
    )
    done = tamis("run", str(recipe), "--memory", "600MB", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["n_written"] == 1
