"""Recipes as users of NeMo Curator have them: keys of Hydra, readers by file type, workflows as a list, `python -m`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tamis import InProcessExecutor
from tamis.config import run as config_run
from tamis.errors import RecipeError, UsageError
from tamis.recipe.load import WorkflowSequence, load_recipe
from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow

FILTER: dict[str, Any] = {
    "defaults": ["_self_", {"override hydra/job_logging": "none"}],
    "hydra": {"run": {"dir": "."}, "output_subdir": None},
    "documentation": "What it does.",
    "input_path": "???",
    "output_path": "???",
    "text_field": "text",
    "ray_client": {"_target_": "nemo_curator.core.client.RayClient", "num_cpus": None},
    "stages": [
        {"input_file_type": "jsonl", "file_paths": "${input_path}", "blocksize": None, "fields": None},
        {
            "_target_": "nemo_curator.stages.text.modules.score_filter.ScoreFilter",
            "filter_obj": {
                "_target_": "nemo_curator.stages.text.filters.heuristic_filter.WordCountFilter",
                "min_words": 2,
            },
            "text_field": "${text_field}",
            "score_field": None,
        },
        {"output_file_type": "jsonl", "path": "${output_path}", "fields": None},
    ],
}
EXACT = {
    "_target_": "nemo_curator.stages.deduplication.exact.workflow.ExactDeduplicationWorkflow",
    "input_path": "${input_path}",
    "output_path": "${output_path}",
    "input_filetype": "jsonl",
    "perform_removal": False,
    "env_vars": None,
}


def recipe(path: Path, about: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump(about, sort_keys=False))
    return str(path)


def test_a_filter_recipe_runs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "one"}\n{"text": "two words"}\n')
    about = FILTER | {"input_path": str(tmp_path / "in"), "output_path": str(tmp_path / "out")}
    pipeline = config_run.create_pipeline_from_yaml(about)
    (task,) = pipeline.run(InProcessExecutor())
    assert [json.loads(line) for line in Path(task.data[0]).read_text().splitlines()] == [{"text": "two words"}]
    same = config_run.create_pipeline_from_yaml(recipe(tmp_path / "r.yaml", about))
    assert [s.name for s in same.stages] == [s.name for s in pipeline.stages]


def test_values_that_are_missing_are_reported(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"put_path: has no value yet; set it with --set"):
        load_recipe(recipe(tmp_path / "r.yaml", FILTER))
    wrong = FILTER | {"stages": [{"input_file_type": "csv", "file_paths": "in"}]}
    with pytest.raises(RecipeError, match="expected jsonl or parquet, got 'csv'"):
        load_recipe(recipe(tmp_path / "r.yaml", wrong))


def test_workflows_as_a_mapping_or_a_list(tmp_path: Path) -> None:
    places = {"input_path": "in", "output_path": "out"}
    for workflow in (EXACT, [EXACT]):
        found = load_recipe(recipe(tmp_path / "r.yaml", {**places, "workflow": workflow})).workflow
        assert isinstance(found, ExactDeduplicationWorkflow)
        assert (found.perform_removal, found.input_filetype) == (False, "jsonl")
    several = load_recipe(recipe(tmp_path / "r.yaml", {**places, "workflow": [EXACT, EXACT]})).workflow
    assert isinstance(several, WorkflowSequence)
    assert len(several.workflows) == 2
    assert several.output_path.endswith("/out")  # where dashboard and alerts look
    with pytest.raises(RecipeError, match="at least one workflow"):
        load_recipe(recipe(tmp_path / "r.yaml", {"workflow": []}))


def test_the_words_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_run.parse(["-cn", "a.yaml", "x.y=1", "+z=2"]) == ("./a.yaml", {"x.y": "1", "z": "2"})
    assert config_run.parse(["x=1"]) == ("./pipeline.yaml", {"x": "1"})
    for words, message in (
        (["--config-name"], "needs a value"),
        (["--verbose"], "is not understood"),
    ):
        with pytest.raises(UsageError, match=message):
            config_run.parse(words)
    seen: list[list[str]] = []
    monkeypatch.setattr("tamis.cli.main.main", lambda: seen.append(config_run.sys.argv[1:]))
    monkeypatch.setattr(config_run.sys, "argv", ["run"])
    config_run.main(["--config-path", "here", "--config-name", "filter", "input_path=in"])
    assert seen == [["run", "here/filter.yaml", "--set", "input_path=in"]]
    config_run.main(["--trust-remote-code", "-cn", "filter"])
    assert seen[-1] == ["run", "./filter.yaml", "--trust-remote-code"]
