"""The tables of choosing and mixing: what solvers write is what the report reads, and damaged files are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tamis.observe import choice_tables
from tamis.observe.choice_tables import BucketGroup, BucketTable, MixGroup, ScoreRange, TopChoice
from tamis.observe.report.choice import choice

SCORES = [ScoreRange("edu", 3, 0.5, 4.0, 2.25), ScoreRange("none")]
BUCKETS = BucketTable("tokens", ["edu"], 7, [BucketGroup("en", [2, 1], [30, 10], [1.5])])
TOP = TopChoice(["edu"], "tokens", n_kept=5, lowest_score=1.25, weight_of_all=1000, weight_kept=250)
MIX = [MixGroup("web", 10, 100, 0.5, 5, 50), MixGroup("<b>", 4, 40, 3.75, 15, 150)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "duplicates"
    folder.mkdir()
    return folder


def test_tables_are_read_as_they_were_written(folder: Path) -> None:
    choice_tables.write_scores(str(folder), SCORES)
    choice_tables.write_buckets(str(folder), BUCKETS)
    choice_tables.write_top(str(folder), TOP)
    choice_tables.write_mix(str(folder), MIX)
    assert list(choice_tables.read_scores(folder)) == [("", SCORES)]
    assert list(choice_tables.read_buckets(folder)) == [("", BUCKETS)]
    assert list(choice_tables.read_tops(folder)) == [("", TOP)]
    assert list(choice_tables.read_mixes(folder)) == [("", MIX)]


def test_steps_are_named_by_their_files(folder: Path) -> None:
    choice_tables.write_mix(str(folder), MIX)
    (folder / "mix.json").rename(folder / "second-mix.json")
    choice_tables.write_mix(str(folder), MIX[:1])
    (folder / "mix.json").rename(folder / "first-mix.json")
    assert list(choice_tables.read_mixes(folder)) == [("first", MIX[:1]), ("second", MIX)]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "null",
        "[]",
        '{"scores": [1]}',
        '{"scores": {"name": "a"}}',
        '{"scores": [{"name": "a", "n": "many"}]}',
        '{"scores": [{"name": "a", "mean": NaN}]}',
        '{"scores": [{"name": "a", "unknown": 1}]}',
        "[" * 100_000,
    ],
)
def test_damaged_tables_are_left_out(folder: Path, content: str) -> None:
    (folder / "scores.json").write_text(content)
    (folder / "good-scores.json").write_text('{"scores": [{"name": "a"}]}')
    assert list(choice_tables.read_scores(folder)) == [("good", [ScoreRange("a")])]


def test_the_page_has_a_table_for_each_step(tmp_path: Path, folder: Path) -> None:
    assert choice(tmp_path, None) == ""
    choice_tables.write_scores(str(folder), SCORES)
    choice_tables.write_buckets(str(folder), BUCKETS)
    choice_tables.write_top(str(folder), TOP)
    choice_tables.write_mix(str(folder), MIX)
    page = choice(tmp_path, None)
    assert "<td>edu</td>" in page
    assert "to 1.5" in page  # the lower bucket
    assert "above 1.5" in page
    assert "75.00%" in page  # of the tokens are in it
    assert "7 documents have no score" in page
    assert "25.00%" in page  # of the weight is kept
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "200 tokens in all" in page
    assert page.index("&lt;b&gt;") < page.index("<td>web</td>")  # the larger part first
