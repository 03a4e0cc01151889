"""Requests: the recipe is read once; what `tamis resume` says of an output that no `tamis run` made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tamis.cli.jobs.request import Request, load_saved
from tamis.errors import UsageError

RECIPE = """
name: t
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: in
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: ${output}
output: first
"""


def test_the_recipe_is_read_once(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    request = Request(str(recipe))
    assert request.workflow() is None
    recipe.unlink()
    assert request.build()[0].name == "t"
    recipe.write_text(RECIPE.replace("name: t", "name: u"))
    assert request.with_options({"workers": 1}, ()).build()[0].name == "u"


@pytest.mark.parametrize("left", ["dedup.json", "dedup", "dedup.lock"])
def test_a_deduplication_is_run_again_by_its_own_command(tmp_path: Path, left: str) -> None:
    (tmp_path / "_tamis").mkdir()
    (tmp_path / "_tamis" / "plan.json").write_text("{}")  # of its last pass
    (tmp_path / "_tamis" / left).write_text("{}")
    with pytest.raises(UsageError, match=r"is the output of a deduplication.*; run the same command again"):
        load_saved(str(tmp_path))


def test_an_output_of_a_script_and_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run of Tamis"):
        load_saved(str(tmp_path))
    (tmp_path / "_tamis").mkdir()
    (tmp_path / "_tamis" / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match="run the same Python script again"):
        load_saved(str(tmp_path))
