"""Two runs compared: by rule, by setting, with files that only one of them read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.cli.main import app
from tamis.curation import Curation
from tamis.curation.steps import ExactDuplicates
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.run_record import load_run_record
from tamis.engine.schema import GpuUseFigures
from tamis.errors import UsageError
from tamis.observe.diff import compare
from tamis.observe.report import write_report
from tamis.observe.report.comparison import write_comparison
from tamis.observe.series import open_series
from tamis.pipeline import Pipeline
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.fineweb import FineWebQuality
from tamis.stages.text.filters.heuristic import NumbersFilter, WordCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import run_dir_path


def run(source: Path, target: Path, min_words: int, max_numbers: float) -> str:
    filters = [WordCountFilter(min_words, 100), NumbersFilter(max_numbers)]
    stages = [JsonlReader(str(source)), ScoreFilter(filters), JsonlWriter(str(target))]
    Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB")
    return str(target)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    texts = ["one", "one two", "one two three", "1 2 3", "1 two three four"]
    lines = [json.dumps({"id": f"d{i}", "text": t}) for i, t in enumerate(texts)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "in"


def test_what_changed_and_why(source: Path, tmp_path: Path) -> None:
    first = run(source, tmp_path / "1", 2, 0.5)  # drops d0 (words), d3 (numbers)
    second = run(source, tmp_path / "2", 3, 0.05)  # drops d0, d1 (words), d3, d4 (numbers)
    found = compare(first, second)
    assert found.n_same == 2
    assert [(c.before, c.after, c.n_documents, c.examples) for c in found.changes] == [
        ("kept", "numbers_ratio", 1, ["d4"]),
        ("kept", "word_count", 1, ["d1"]),
    ]
    assert found.changes[1].n_bytes == len(json.dumps({"id": "d1", "text": "one two"}))
    stage = "(stage score_filter_chain_of_word_count_numbers_ratio)"
    assert found.settings == [
        f"word_count: min_words 2 -> 3 {stage}",
        f"numbers_ratio: max_number_to_text_ratio 0.5 -> 0.05 {stage}",
    ]
    back = compare(second, first)
    assert [(c.before, c.after) for c in back.changes] == [("numbers_ratio", "kept"), ("word_count", "kept")]
    third = run(source, tmp_path / "3", 4, 0.5)  # d3 now falls to the first rule
    assert ("numbers_ratio", "word_count", 1) in [
        (c.before, c.after, c.n_documents) for c in compare(first, third).changes
    ]


def test_the_same_run_differs_in_nothing(source: Path, tmp_path: Path) -> None:
    first = run(source, tmp_path / "1", 2, 0.5)
    found = compare(first, first)
    assert (found.settings, found.changes, found.n_same) == ([], [], 2)


def cut_log(output: str) -> Path:
    """Leave of a run what it would have been before it committed anything."""
    folder = run_dir_path(Path(output))
    (folder / "commit.log").write_bytes(b"")
    (folder / "manifest.json").unlink()
    for path in (folder / "verdicts").iterdir():
        path.unlink()
    return folder


def test_what_a_run_never_looked_at_is_not_called_kept(source: Path, tmp_path: Path) -> None:
    first = run(source, tmp_path / "1", 2, 0.5)  # drops d0 (words), d3 (numbers)
    second = run(source, tmp_path / "2", 2, 0.5)
    folder = cut_log(second)
    found = compare(first, second)
    assert [(c.before, c.after, c.n_documents) for c in found.changes] == [
        ("numbers_ratio", "not read", 1),
        ("word_count", "not read", 1),
    ]
    assert found.remarks == ["the second run is not finished"]
    d3 = (source / "a.jsonl").read_bytes().index(b'{"id": "d3"')
    entry = {
        "file": str(source / "a.jsonl"),
        "offset": d3,
        "length": 9,
        "unit": "bytes",
        "reason": "r",
        "stage": "",
        "n": 1,
    }
    (folder / "quarantine/q-0.jsonl").write_text(json.dumps(entry) + "\n")
    assert ("numbers_ratio", "quarantined") in [(c.before, c.after) for c in compare(first, second).changes]
    said = CliRunner().invoke(app, ["diff", second, first])
    assert said.stdout.startswith("the first run is not finished\n")


def test_a_sample_keeps_only_what_it_took(source: Path, tmp_path: Path) -> None:
    first = run(source, tmp_path / "1", 2, 0.5)
    stages = [JsonlReader(str(source)), ScoreFilter([WordCountFilter(0, 100)]), JsonlWriter(str(tmp_path / "2"))]
    Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB", sample="10%")
    found = compare(first, str(tmp_path / "2"))
    assert {(c.before, c.after) for c in found.changes} == {
        ("numbers_ratio", "kept or not in the sample"),
        ("word_count", "kept or not in the sample"),
    }
    assert found.remarks == ["the second run is a sample of 10 %"]
    Pipeline("p", stages=stages).execute(InProcessExecutor(), memory="512MB")  # goes on to all
    found = compare(first, str(tmp_path / "2"))
    assert ({c.after for c in found.changes}, found.remarks) == ({"kept"}, [])


def test_files_that_only_one_run_read_are_left_out(source: Path, tmp_path: Path) -> None:
    first = run(source, tmp_path / "1", 2, 0.5)
    (source / "0.jsonl").write_text('{"id": "new", "text": "one"}\n')  # takes the number of the other file
    second = run(source, tmp_path / "2", 2, 0.5)
    found = compare(first, second)
    assert (found.changes, found.n_same, found.only_second) == ([], 2, [str(source / "0.jsonl")])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.jsonl").write_text('{"text": "one"}\n')
    with pytest.raises(UsageError, match="read no file in common"):
        compare(first, run(tmp_path / "other", tmp_path / "3", 2, 0.5))


def test_the_commands(source: Path, tmp_path: Path) -> None:
    first, second = run(source, tmp_path / "1", 2, 0.5), run(source, tmp_path / "2", 3, 0.5)
    result = CliRunner().invoke(app, ["diff", first, second])
    assert result.exit_code == 0, result.output
    assert "word_count" in result.output
    assert "d1" in result.output
    about = json.loads(CliRunner().invoke(app, ["diff", first, second, "--json"]).output)
    assert about["changes"][0]["n_documents"] == 1
    made = json.loads(CliRunner().invoke(app, ["report", first, "--json"]).output)
    assert Path(made["report"]).stat().st_size == made["bytes"] > 1000
    nothing = CliRunner().invoke(app, ["diff", first, str(tmp_path)])
    assert (nothing.exit_code, "holds no run of Tamis" in nothing.output) == (2, True)


def test_how_both_runs_went_is_reported(source: Path, tmp_path: Path) -> None:
    first, second = run(source, tmp_path / "1", 2, 0.5), run(source, tmp_path / "2", 2, 0.5)
    with open_series(run_dir_path(second)) as series:
        facts = series.about
    db = RunDatabase(str(run_dir_path(second) / "run.sqlite"))
    db.about(replace(facts, gpu=GpuUseFigures({"0": 0.9, "1": 0.8}, out_of_memory=3)))
    db.close()
    figures = {f.name: (f.before, f.after) for f in compare(first, second).figures}
    assert {"seconds", "first output"} <= set(figures)
    assert figures["GPU busy"] == (None, pytest.approx(0.85))
    assert figures["out of GPU memory"] == (None, 3.0)
    shown = CliRunner().invoke(app, ["diff", first, second]).output
    assert "GPU busy" in shown
    assert "85.0%" in shown
    page = Path(write_report(str(run_dir_path(second)))).read_text()
    assert all(words in page for words in ("GPU busy", "85.0%", "out of GPU memory", "first output"))


def test_two_runs_side_by_side_on_a_page(source: Path, tmp_path: Path) -> None:
    first, second = run(source, tmp_path / "1", 2, 0.5), run(source, tmp_path / "2", 3, 0.05)
    told = CliRunner().invoke(app, ["diff", first, second, "--html"])
    assert (told.exit_code, told.stdout) == (0, str(run_dir_path(second) / "diff.html\n"))
    page = Path(told.stdout.strip()).read_text()
    assert "<script" not in page
    assert page.count('<svg class="rows"') == 2  # the flow of each
    for row in (
        '<td>kept by both</td><td class="n">1</td>',
        '<td>kept by the first run only</td><td class="n">2</td>',
        '<td>kept by the second run only</td><td class="n">0</td>',
        '<td>written</td><td class="n">3</td><td class="n">1</td>',
        '<td class="n">1</td><td>kept</td><td>word_<wbr>count</td>',
    ):
        assert row in page
    assert "min_words 2 -&gt; 3" in page
    records = [load_run_record(str(run_dir_path(folder))) for folder in (first, second)]
    assert all(f"<b>{record.seconds:,.1f} s</b>" in page for record in records if record is not None)
    shown = json.loads(CliRunner().invoke(app, ["diff", first, second, "--html", "--json"]).stdout)
    assert (shown["page"], len(shown["changes"])) == (str(run_dir_path(second) / "diff.html"), 2)


def test_hostile_names_on_the_page_of_two_runs(source: Path, tmp_path: Path) -> None:
    first, second = run(source, tmp_path / "1", 2, 0.5), run(source, tmp_path / "2", 3, 0.05)
    hostile = "<script>alert(1)</script>"
    for name in ("run.json", "manifest.json"):
        path = run_dir_path(Path(second)) / name
        path.write_text(path.read_text().replace('"word_count"', json.dumps(hostile)))
    record = json.loads((run_dir_path(Path(second)) / "run.json").read_text())
    (run_dir_path(Path(second)) / "run.json").write_text(json.dumps({**record, "name": hostile}))
    found = compare(first, second)
    found.settings.append(hostile)
    found.changes[0].examples = [hostile]
    found.changes += [replace(found.changes[0], n_documents=1, after=f"rule_{i}") for i in range(30)]
    page = write_comparison(str(run_dir_path(first)), str(run_dir_path(second)), found).read_text()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4
    shown, _, folded = page.partition(" more changes, of ")
    n_folded = len(found.changes) - 20
    assert shown.endswith(f"<details><summary>{n_folded}")
    assert folded.startswith(f"{n_folded} documents</summary>")
    assert "rule_<wbr>29" in folded  # all of them are on the page


def test_settings_of_curations_are_named_as_in_recipes(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"id": str(i), "text": "A line.\n" * i}) + "\n" for i in range(9))
    )

    def curate(name: str, limit: float, keep: str) -> str:
        steps = [FineWebQuality(line_punct_thr=limit, char_duplicates_ratio=None), ExactDuplicates(keep=keep)]
        Curation(steps, str(tmp_path / "in.jsonl"), str(tmp_path / name)).run(memory="512MB", progress=False)
        return str(tmp_path / name)

    found = compare(curate("1", 0.12, "first"), curate("2", 0.05, "longest"))
    assert found.settings == [
        "line_punct_ratio: line_punct_thr 0.12 -> 0.05 (stage fineweb_quality)",
        "deduplications: keep 'first' -> 'longest'",
    ]
