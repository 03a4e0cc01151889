"""`tamis curate`: one run looked at from all sides: the table, why for every step, the plan, resuming, the recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tamis.cli.jobs.jobs import find_recipe
from tamis.curation.steps import CorpusStep
from tamis.errors import RecipeError
from tamis.recipe.load import load_recipe
from tests.support.command import tamis
from tests.support.made_documents import edited, text
from tests.support.run_dirs import data_names, run_dir_path

RECIPE = """
name: mine
input: ???
output: ???
text_field: text
steps:
  - preset: minimal
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {_target_: tamis.stages.text.filters.heuristic.WordCountFilter, min_words: 30}
    name: long_enough
  - fuzzy_duplicates: {text_field: "${text_field}", keep: first}
  - sample: {fraction: 100%}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("curate")
    source = folder / "in"
    source.mkdir()
    whole = text(1)
    docs = [
        {"id": "original", "text": whole},
        {"id": "equal", "text": whole},
        {"id": "similar", "text": edited(whole, 2)},
        {"id": "short", "text": "too short to stay"},
        {"id": "null", "text": None},
        {"id": "none"},
        *({"id": f"other-{i}", "text": text(i + 10)} for i in range(4)),
    ]
    lines = [json.dumps(d) for d in docs]
    (source / "a.jsonl").write_text("\n".join([*lines[:5], "{broken", *lines[5:]]) + "\n")
    (folder / "mine.yaml").write_text(RECIPE)
    said = tamis(
        "curate",
        source,
        folder / "out",
        "--preset",
        folder / "mine.yaml",
        "--memory",
        "400MB",
        "--quarantine-limit",
        "20%",
        "--json",
    )
    assert said.exit_code == 0, said.output
    return folder, json.loads(said.stdout)


def test_every_record_is_accounted_for_in_one_ledger(made: Any) -> None:
    folder, about = made
    dropped = {(s["name"], rule): n for s in about["stages"] for rule, n in s["dropped"].items()}
    assert dropped == {
        ("text", "text_missing"): 1,
        ("text", "text_null"): 1,
        ("remove_exact_duplicates", "duplicate"): 1,
        ("long_enough", "word_count"): 1,
        ("remove_fuzzy_duplicates", "duplicate"): 1,
    }
    assert about["n_records"] == about["n_written"] + about["n_dropped"] + about["n_quarantined"] == 11
    assert [s["name"] for s in about["stages"]] == [
        "text",
        "remove_exact_duplicates",
        "long_enough",
        "remove_fuzzy_duplicates",
        "sample",
        "describe",
    ]
    labels = [p["label"].partition(" ")[0] for p in about["passes"]]
    assert labels == ["keys-0", "decision-0", "keys-0", "decision-0", "write", "scores"]
    assert {k: d["n_duplicates"] for k, d in about["deduplications"].items()} == {
        "remove_exact_duplicates": 1,
        "remove_fuzzy_duplicates": 1,
    }
    kept = [
        json.loads(line)["id"] for p in sorted((folder / "out").glob("*.jsonl")) for line in p.read_text().splitlines()
    ]
    assert kept == ["original", *(f"other-{i}" for i in range(4))]
    tables = sorted(p.name for p in (run_dir_path(folder / "out") / "duplicates").iterdir())
    assert tables == ["remove_exact_duplicates-part-00000.parquet", "remove_fuzzy_duplicates-part-00000.parquet"]
    assert pq.read_table(run_dir_path(folder / "out") / "duplicates" / tables[0])["similarity"].to_pylist() == [1.0]


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        ("null", ["text_null"]),
        ("short", ["word_count", "min_words", "4"]),
        ("equal", ["remove_exact_duplicates", "kept:", "1.0000"]),
        ("similar", ["remove_fuzzy_duplicates", "kept:", "+++ removed", "changed"]),
    ],
)
def test_why_answers_for_any_step(document: str, parts: list[str], made: Any) -> None:
    said = tamis("why", made[0] / "out", document)
    assert said.exit_code == 0, said.output
    assert [part for part in parts if part not in said.output] == []


def test_what_another_threshold_would_do_is_reported_of_what_was_written_in_the_end(made: Any) -> None:
    for limit, n_back, n_lost in ((3, 1, 0), (30, 0, 0), (500, 0, 5)):
        said = tamis("rethreshold", made[0] / "out", f"word_count.min_words={limit}", "--json")
        told = json.loads(said.stdout)
        assert (told["n_back"], told["n_written"], told["n_lost"]) == (n_back, 5, n_lost)


def test_the_report_has_the_funnel_of_all_steps(made: Any) -> None:
    page = (run_dir_path(made[0] / "out") / "report.html").read_text()
    assert [
        n for n in ("text_null", "word_count", "remove_exact_duplicates", "remove_fuzzy_duplicates") if n not in page
    ] == []


def test_again_there_is_nothing_to_do_by_the_command_by_resume_and_by_the_recipe(made: Any) -> None:
    folder, about = made
    for command in (
        ["curate", folder / "in", folder / "out", "--preset", folder / "mine.yaml"],
        ["resume", folder / "out"],
        ["run", folder / "mine.yaml", "--set", f"input={folder / 'in'}", "--set", f"output={folder / 'out'}"],
    ):
        said = tamis(*command)
        assert (said.exit_code, "finished earlier" in said.output) == (0, True), said.output
    assert f"{about['n_written']:,} documents" in said.output


def test_other_steps_are_refused(made: Any) -> None:
    folder, _ = made
    said = tamis("curate", folder / "in", folder / "out", "--preset", "minimal")
    assert (said.exit_code, "already contains another curation" in said.output) == (5, True), said.output
    changed = tamis(
        "curate",
        folder / "in",
        folder / "out",
        "--preset",
        folder / "mine.yaml",
        "--set",
        "steps.2.filter_obj.min_words=31",
    )
    assert (changed.exit_code, "filter_settings" in changed.output or "min_words" in changed.output) == (5, True)


def test_the_plan_and_the_recipe_can_be_seen(made: Any) -> None:
    folder, _ = made
    said = tamis("curate", folder / "in", folder / "other", "--preset", "web-english", "--plan", "--json")
    plan = json.loads(said.stdout)
    assert len(plan["passes"]) == 2
    assert plan["n_documents"] == 11
    assert plan["key_bytes"] == {"remove_exact_duplicates+remove_fuzzy_duplicates": 11 * (76 + 14 * 12)}
    assert plan["passes"][0]["runs"] == [
        "text",
        "fineweb_quality",
        "c4_text",
        "c4_quality",
        "gopher_quality",
        "gopher_repetition",
        "language",
    ]
    keys, write = plan["costs"]
    size = sum(p.stat().st_size for p in (folder / "in").iterdir())
    assert (keys["read_bytes"], write["read_bytes"], write["written_bytes"]) == (size, size, size)
    assert keys["written_bytes"] == plan["key_bytes"]["remove_exact_duplicates+remove_fuzzy_duplicates"]
    assert keys["cpu_s"] >= write["cpu_s"] >= 0  # the rules run once, with the keys
    assert keys["held_bytes"] > 0
    assert not (folder / "other").exists()
    shown = tamis(
        "plan",
        folder / "mine.yaml",
        "--set",
        f"input={folder / 'in'}",
        "--set",
        f"output={folder / 'other'}",
        "--no-probe",
    )
    assert (shown.exit_code, "3 passes over the input" in shown.output) == (0, True)
    runs = [line for line in shown.output.splitlines() if line.startswith("   runs ")]
    assert runs, "facts of a pass are below its name, where they have most of a narrow terminal"
    assert {line.index(line.split(maxsplit=1)[1]) for line in runs} == {28}
    printed = tamis("recipe", "show", "web-english")
    assert printed.stdout.startswith("# English web text, as FineWeb does it")
    assert "minimal" in tamis("recipe", "list").stdout


@pytest.mark.parametrize("preset", ["web-english", "web-multilingual", "books", "code", "minimal"])
def test_every_preset_can_be_planned(preset: str, made: Any) -> None:
    ends = {"input": str(made[0] / "in"), "output": str(made[0] / "x"), "text_field": "body"}
    curation: Any = load_recipe(find_recipe(preset), overrides=ends).workflow
    assert curation.plan().n_reads == 2
    assert {s.text_field for s in curation.steps if isinstance(s, CorpusStep)} == {"body"}


def test_mistakes_are_said(made: Any, tmp_path: Path) -> None:
    folder, _ = made
    for recipe, message in (
        ("steps: [gopher_qualty]", "did you mean gopher_quality?"),
        ("steps: [{preset: nonsense}]", "no such preset: nonsense"),
        ("steps: [{sample: 3}]", "expected its parameters by name"),
        ("steps: [{sample: {fraction: 200%}}]", "fraction"),
        ("steps: [sample]\nwrite: {fromat: jsonl}", "did you mean format?"),
        ("steps: [sample]\nstages: []", "got both"),
        ("steps: [{_target_: tamis.curation.runner.CurationRun}]", "is refused"),
    ):
        (tmp_path / "bad.yaml").write_text(f"name: bad\ninput: ???\noutput: ???\n{recipe}\n")
        said = tamis("curate", folder / "in", folder / "x", "--preset", tmp_path / "bad.yaml", "--plan")
        assert (said.exit_code, message in said.output) == (2, True), said.output
    assert tamis("curate", folder / "in", folder / "x", "--preset", "gopher").exit_code == 2
    assert tamis("curate", folder / "nowhere", folder / "x", "--preset", "minimal").exit_code == 2


def test_an_option_changes_its_field_of_the_recipe_alone(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        'name: mine\ninput: ???\noutput: ???\nsteps: [text]\nwrite: {format: jsonl.gz, split: "a=50,b=50"}\n'
    )
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text(i, 9)}) + "\n" for i in range(40)))
    done = tamis("curate", tmp_path / "in.jsonl", tmp_path / "out", "--preset", recipe, "--no-card", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert data_names(tmp_path / "out") == ["a-00000-of-00001.jsonl.gz", "b-00000-of-00001.jsonl.gz"]
    recipe.write_text(recipe.read_text().replace("a=50", "a=40"))
    with pytest.raises(RecipeError, match=r"mine.yaml:5: write: split: expected shares that sum up to 100"):
        load_recipe(recipe, overrides={"input": "in", "output": "out"})
    for option, message in (
        (["--split", "a/b=50,c=50"], "split: names are letters"),
        (["--format", "xml"], "format must be one of arrow, jsonl"),
    ):
        wrong = tamis("curate", tmp_path / "in.jsonl", tmp_path / "no", *option)
        assert wrong.exit_code == 2
        assert wrong.stderr.startswith(f"error: {message}"), wrong.stderr
