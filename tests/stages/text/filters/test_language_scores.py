"""A threshold for each language: tables, and the rule that makes one from the scores of a first pass."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from pathlib import Path

import pytest

from tamis.errors import UsageError
from tamis.stages.text.filters.fasttext import FastTextLangId, LanguageFilter
from tamis.stages.text.language_scores import ScoreHistograms, thresholds_of_run
from tests.support.command import tamis


def test_the_rule_of_fineweb2_from_a_histogram() -> None:
    scores = [0.5 + 0.4 * math.sin(i) for i in range(5000)]
    histograms = ScoreHistograms()
    histograms.add((score, "deu_Latn") for score in scores)
    expected = max(0.3, min(0.9, statistics.median(scores) - statistics.pstdev(scores)))
    assert histograms.thresholds()["deu_Latn"] == pytest.approx(max(0.3, expected), abs=0.011)
    histograms.add([(0.99, "eng_Latn")] * 10)
    assert histograms.thresholds(min_documents=100).keys() == {"deu_Latn"}
    assert histograms.thresholds()["eng_Latn"] == 0.9


def test_each_language_has_its_threshold(tmp_path: Path) -> None:
    table = tmp_path / "t.yaml"
    table.write_text("eng_Latn: 0.8\ndeu_Latn: 0.4\n")
    for min_scores in ({"eng_Latn": 0.8, "deu_Latn": 0.4}, str(table)):
        one = FastTextLangId(min_scores=min_scores)
        kept = [one.keep_document(f"[{s}, '{label}']") for s, label in ((0.7, "eng_Latn"), (0.8, "eng_Latn"))]
        assert kept == [False, True]
        assert one.keep_document("[0.4, 'deu_Latn']")
        assert not one.keep_document("[0.99, 'fra_Latn']")
    with_default = FastTextLangId(min_scores={"eng_Latn": 0.8, "default": 0.5})
    assert with_default.keep_document("[0.5, 'fra_Latn']")
    assert not with_default.keep_document("[0.49, 'fra_Latn']")
    assert LanguageFilter(min_scores={"en": 0.8}).filters()[0].thresholds() == {"min_scores": {"en": 0.8}}


@pytest.mark.parametrize("table", [{}, {"en": 2}, {"en": "x"}, {"en": True}, "none.yaml", 3])
def test_wrong_tables_are_named(table: object) -> None:
    with pytest.raises(UsageError, match="min_scores"):
        FastTextLangId(min_scores=table)  # type: ignore[arg-type]


def test_from_a_first_pass_to_a_table(tmp_path: Path) -> None:
    lines = [json.dumps({"language": f"[{0.5 + i / 1000}, 'en']"}) for i in range(400)] + ['{"language": null}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines[:200]))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[200:]).encode()))
    assert thresholds_of_run(str(tmp_path)) == {"en": pytest.approx(0.7 - 0.1155, abs=0.011)}
    with pytest.raises(UsageError, match=r"no language has 401 documents.*; en has most: 400"):
        thresholds_of_run(str(tmp_path), min_documents=401)
    with pytest.raises(UsageError, match="no document has the field 'lang'"):
        thresholds_of_run(str(tmp_path), field="lang")


def test_in_a_recipe(tmp_path: Path) -> None:
    texts = ["Dies ist ein deutscher Text über das Wetter und die Leute im Tal.", "This is an English text about it."]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    (tmp_path / "r.yaml").write_text(
        "name: r\ninput: ???\noutput: ???\nsteps:\n  - language: {min_scores: {de: 0.5}, language_field: language}\n"
    )
    done = tamis(
        "curate", tmp_path / "in.jsonl", tmp_path / "out", "--preset", tmp_path / "r.yaml", "--memory", "600MB"
    )
    assert done.exit_code == 0, done.output
    kept = [json.loads(line) for p in (tmp_path / "out").glob("*.jsonl") for line in p.read_text().splitlines()]
    assert [d["text"] for d in kept] == texts[:1]
