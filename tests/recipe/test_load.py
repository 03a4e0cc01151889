"""Recipes: structure, building, settings, and hostile files that must be refused before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import RecipeError
from tamis.recipe.load import load_recipe
from tamis.recipe.step_names import PRESETS, expand
from tamis.yaml_text import parse

KITCHEN = """
import os
from pathlib import Path
from dataclasses import dataclass, field

LOADED = True

@dataclass
class Sieve:
    mesh: int = 3
    _secret: int = 0
    def keep(self): return True

@dataclass
class Stage:
    sieve: object = None
    fields: list = field(default_factory=list)
    size: str = "1MB"
    def __post_init__(self):
        if self.size == "none":
            raise ValueError("size must be a size, got 'none'")
    def process(self, task): return task

@dataclass
class Reader:
    file_paths: str
    blocksize: str = "1MB"
    def process(self, task): return task

class Flow:
    def __init__(self, **options): self.options = options
    def run(self): return 1

class Meta(type):
    pass

def function(x=1): return x
"""


@pytest.fixture
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "recipe_kitchen.py").write_text(KITCHEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("recipe_kitchen", None)


def load(tmp_path: Path, text: str, **options: Any) -> Any:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    options.setdefault("allow", ["recipe_kitchen"])
    options.setdefault("environ", {})
    return load_recipe(path, **options)


def refused(tmp_path: Path, text: str, **options: Any) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        load(tmp_path, text, **options)
    return caught.value


@pytest.mark.usefixtures("kitchen")
def test_stages_with_nested_targets_are_built(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        """
name: clean
description: two sieves
stages:
  - _target_: recipe_kitchen.Stage
    size: 512MB
    sieve:
      - _target_: recipe_kitchen.Sieve
        mesh: 7
      - _target_: recipe_kitchen.Sieve
    fields: [id, text]
settings:
  memory: 2GB
  workers: 4
  quarantine_limit: 1%
  schema: {id: int64}
execution_mode: batch
backend: ray_data
""",
    )
    assert (recipe.name, recipe.description) == ("clean", "two sieves")
    (stage,) = recipe.stages
    assert [sieve.mesh for sieve in stage.sieve] == [7, 3]
    assert (stage.size, stage.fields) == ("512MB", ["id", "text"])
    assert recipe.settings == {
        "memory": "2GB",
        "workers": 4,
        "quarantine_limit": "1%",
        "mode": "batch",
    }
    assert (recipe.backend, recipe.workflow, recipe.schema) == ("ray_data", None, {"id": "int64"})


@pytest.mark.usefixtures("kitchen")
def test_workflow_and_default_name(tmp_path: Path) -> None:
    recipe = load(tmp_path, "workflow: {_target_: recipe_kitchen.Flow, eps: 0.1}\n")
    assert recipe.workflow.options == {"eps": 0.1}
    assert (recipe.stages, recipe.name) == ([], "r")


@pytest.mark.usefixtures("kitchen")
def test_decorated_functions_are_stages_where_they_are_defined(tmp_path: Path) -> None:
    head = "from tamis.stages.function_decorators import processing_stage\n"
    (tmp_path / "recipe_other.py").write_text(head + "@processing_stage(name='shout')\ndef shout(task): return task\n")
    (tmp_path / "recipe_kitchen.py").write_text("from recipe_other import shout\n")
    text = "stages:\n- _target_: recipe_other.shout\n"
    try:
        (stage,) = load(tmp_path, text, allow=["recipe_other"]).stages
        assert stage.name == "shout"
        assert "takes no parameters" in str(refused(tmp_path, text + "  x: 1\n", allow=["recipe_other"]))
        assert "not a class or stage defined" in str(refused(tmp_path, text.replace("other", "kitchen")))
    finally:
        sys.modules.pop("recipe_other", None)


@pytest.mark.usefixtures("kitchen")
def test_names_of_the_original_package_are_read_as_tamis(tmp_path: Path) -> None:
    error = refused(tmp_path, "stages:\n  - _target_: nemo_curator.stages.no_such_room.Thing\n")
    assert "tamis.stages.no_such_room" in str(error)


@pytest.mark.usefixtures("kitchen")
def test_references_and_overrides(tmp_path: Path) -> None:
    text = """
input: ???
mesh: 5
stages:
  - _target_: recipe_kitchen.Stage
    sieve: ${mesh}
    size: "${mesh}"
    fields: ["${input}/a", "${env:HOST,local}", "$${x}"]
settings: {workers: "${env:N}x"}
"""
    error = refused(tmp_path, text)
    assert (error.line, error.field) == (9, "settings.workers")
    text = text.replace('"${env:N}x"', "1")
    error = refused(tmp_path, text)
    assert (error.line, error.field) == (2, "input")
    assert "--set input=" in str(error)
    options = {
        "overrides": {"input": "/data", "settings.workers": "3", "stages.0.size": "9MB"},
        "environ": {"HOST": "h1"},
    }
    recipe = load(tmp_path, text, **options)
    assert recipe.stages[0].fields == ["/data/a", "h1", "${x}"]
    assert (recipe.stages[0].sieve, recipe.stages[0].size, recipe.settings) == (5, "9MB", {"workers": 3})


@pytest.mark.usefixtures("kitchen")
def test_environment_value_takes_its_type_where_it_stands_alone(tmp_path: Path) -> None:
    text = "stages:\n  - _target_: recipe_kitchen.Stage\n    sieve: ${env:N}\n    size: '${env:N}'\n"
    stage = load(tmp_path, text, environ={"N": "12"}).stages[0]
    assert (stage.sieve, stage.size) == (12, "12")


def test_environment_values_are_not_expanded_again(tmp_path: Path) -> None:
    text = "name: 'x ${env:A}'\nstages: []\n"
    error = refused(tmp_path, text, environ={"A": "${env:SECRET}", "SECRET": "s"})
    assert "list of stages" in str(error)
    text = "name: 'x ${env:A}'\nbackend: '${env:A}-'\nstages: [1]\n"
    assert "${env:SECRET}-" in str(refused(tmp_path, text, environ={"A": "${env:SECRET}", "SECRET": "s"}))


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        (
            "stages:\n- _target_: recipe_kitchen.Reader\n  file_path: x\n",
            3,
            "stages.0.file_path",
            "did you mean file_paths?",
        ),
        ("stages:\n- _target_: recipe_kitchen.Reader\n  x: 1\n", 3, "stages.0.x", "blocksize, file_paths"),
        ("stages:\n- _target_: recipe_kitchen.Reader\n", 2, "stages.0", "needs file_paths"),
        ("stages:\n- _target_: recipe_kitchen.Stage\n  size: none\n", 3, "stages.0.size", "must be a size"),
        ("stages:\n- _target_: recipe_kitchen.Reeder\n", 2, "stages.0._target_", "did you mean Reader?"),
        ("stages:\n- _target_: recipe_kitchen.Sieve\n", 2, "stages.0", "not a stage"),
        ("stages:\n- recipe_kitchen.Sieve\n", 2, "stages.0", "_target_"),
        ("stages:\n- _target_: recipe_kitchen.Flow\n  _partial_: true\n", 3, "stages.0._partial_", "not supported"),
        ("stagess:\n- 1\n", 2, "stagess", "did you mean stages?"),
        ("stages: [1]\nmemory: 2GB\n", 2, "memory", "nothing refers to ${memory}"),
        ("name: x\n", 1, "", "neither"),
        ("stages: [1]\nworkflow: {}\n", 1, "", "both"),
        ("stages: [1]\nsettings:\n  memry: 1GB\n", 3, "settings.memry", "did you mean memory?"),
        ("stages: [1]\nsettings:\n  memory: lots\n", 3, "settings.memory", "'lots'"),
        ("stages: [1]\nsettings:\n  workers: 0\n", 3, "settings.workers", "of at least 1"),
        ("stages: [1]\nsettings:\n  allow_modules: [os]\n", 3, "settings.allow_modules", "--allow-module"),
        ("stages: [1]\nbackend: spark\n", 2, "backend", "local, ray, ray_actor_pool, ray_data, xenna"),
        ("stages: [1]\nexecution_mode: batch\nsettings: {mode: streaming}\n", 2, "execution_mode", "differ"),
        ("stages: [1]\nname: a\nname: b\n", 3, "", "given twice, first on line 2"),
        ("stages:\n  - {a: 1, a: 2}\n", 2, "stages.0", "given twice"),
        ("name: ${a}\na: ${b}\nb: ${a}\nstages: [1]\n", 3, "b", "refers to itself"),
        ("name: ${oc.env:A}\nstages: [1]\n", 1, "name", "not supported"),
        ("name: ${env:A}\nstages: [1]\n", 1, "name", "A is not set"),
        ("name: 'a ${b'\nstages: [1]\n", 1, "name", "not closed"),
        ("name: [\n", 2, "", "not valid YAML"),
        ("- 1\n", 1, "", "expected a mapping"),
        ("", 0, "", "empty"),
        ("stages: [1]\n---\nstages: [1]\n", 2, "", "one YAML document"),
    ],
)
@pytest.mark.usefixtures("kitchen")
def test_mistakes_name_line_and_field(tmp_path: Path, text: str, line: int, field: str, words: str) -> None:
    error = refused(tmp_path, text)
    assert words in str(error)
    assert (error.line, error.field) == (line, field)
    assert str(error).startswith(str(tmp_path / "r.yaml"))


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "eval",
        "subprocess.Popen",
        "tamis.sizes.re.compile",
        "tamis.sizes.parse_size",
        "tamis.errors.TamisError",
        "tamis.recipe.load.load_recipe",
        "tamis.engine.worker.loop.Worker",
        "tamis.cli.main.main",
        "tamis.stages.__init__.os.system",
        "tamis.stages._private.Thing",
        "tamis.stages.os.system",
        "tamis.stages..os.system",
        "tamis.stages/../os.system",
        "tamis.stagesX.Thing",
        "tamis.pipeline",
        "nemo_curator.sizes.re.compile",
        "recipe_kitchen.os.system",
        "recipe_kitchen.Path",
        "recipe_kitchen.dataclass",
        "recipe_kitchen.function",
        "recipe_kitchen.Meta",
        "recipe_kitchen.Sieve.keep",
        "recipe_kitchen.__builtins__",
        "recipe_kitchen2.Stage",
        "ｏｓ.system",
        "",
    ],
)
@pytest.mark.usefixtures("kitchen")
def test_hostile_targets_are_refused(tmp_path: Path, target: str) -> None:
    marker = tmp_path / "ran"
    error = refused(tmp_path, f"stages:\n- _target_: '{target}'\n  command: touch {marker}\n")
    assert error.field in ("stages.0._target_", "stages.0.command")
    assert not marker.exists()


@pytest.mark.usefixtures("kitchen")
def test_nothing_is_imported_when_one_target_is_refused(tmp_path: Path) -> None:
    text = (
        "stages:\n- _target_: recipe_kitchen.Stage\n- _target_: recipe_kitchen.Stage\n  sieve: [{_target_: "
        "os.system}]\n"
    )
    error = refused(tmp_path, text)
    assert error.field == "stages.1.sieve.0._target_"
    assert "recipe_kitchen" not in sys.modules


def test_modules_must_be_allowed_by_name(tmp_path: Path) -> None:
    error = refused(tmp_path, "stages:\n- _target_: recipe_kitchen.Stage\n", allow=[])
    assert "--allow-module recipe_kitchen" in str(error)
    assert "recipe_kitchen" not in sys.modules
    with pytest.raises(RecipeError, match="--allow-module"):
        load(tmp_path, "stages: [1]\n", allow=["a b"])


def test_a_reference_cannot_smuggle_a_target(tmp_path: Path) -> None:
    text = "x: os.system\nstages:\n- _target_: ${x}\n  command: 'true'\n"
    assert "os.system is refused" in str(refused(tmp_path, text))
    text = "stages:\n- _target_: ${env:T}\n  command: 'true'\n"
    assert "os.system is refused" in str(refused(tmp_path, text, environ={"T": "os.system"}))


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ("trust_remote_code: true", "workflow.trust_remote_code"),
        ("trust_remote_code: ${yes}", "workflow.trust_remote_code"),
        ("trust_remote_code: 'false'", "workflow.trust_remote_code"),  # a text, which is as good as a yes
        ("vllm_kwargs: [{trust_remote_code: 1}]", "workflow.vllm_kwargs.0.trust_remote_code"),
    ],
)
@pytest.mark.usefixtures("kitchen")
def test_a_recipe_cannot_let_models_run_code(tmp_path: Path, parameters: str, field: str) -> None:
    text = f"yes: 1\nname: t${{yes}}\nworkflow:\n  _target_: recipe_kitchen.Flow\n  {parameters}\n"
    error = refused(tmp_path, text)
    assert (error.line, error.field) == (5, field)
    assert "add --trust-remote-code to the command" in str(error)
    assert load(tmp_path, text, trust_remote_code=True).workflow.options


@pytest.mark.usefixtures("kitchen")
def test_a_recipe_may_say_that_models_run_no_code(tmp_path: Path) -> None:
    for word in ("false", "null", "0"):
        text = f"workflow: {{_target_: recipe_kitchen.Flow, trust_remote_code: {word}}}\n"
        assert not load(tmp_path, text).workflow.options["trust_remote_code"]


def n_steps(path: Path) -> int:
    root: Any = parse(path.read_text(), str(path))
    expand(root, str(path))
    return len(root.value["steps"].value)


def test_steps_of_a_file_next_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/mine.yaml").write_text("steps: [text, add_id]\n")
    (tmp_path / "sub/minimal.yaml").write_text("steps: [{preset: minimal.yaml}]\n")  # the shipped one, not itself
    (tmp_path / "r.yaml").write_text("steps: [{preset: sub/mine.yaml}, {preset: up.yaml}]\n")
    (tmp_path / "up.yaml").write_text("steps: [text]\n")
    monkeypatch.chdir(tmp_path / "sub")
    assert n_steps(tmp_path / "r.yaml") == 3
    assert n_steps(tmp_path / "sub/minimal.yaml") == n_steps(PRESETS / "minimal.yaml")
    (tmp_path / "sub/sub").mkdir()
    (tmp_path / "sub/sub/mine.yaml").write_text("steps: [text]\n")  # a path is looked for from here first
    assert n_steps(tmp_path / "r.yaml") == 2
    (tmp_path / "up.yaml").unlink()
    with pytest.raises(RecipeError, match=r"no such preset: up.yaml"):
        n_steps(tmp_path / "r.yaml")


def test_unreadable_recipes(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="No such file"):
        load_recipe(tmp_path / "none.yaml")
    path = tmp_path / "b.yaml"
    path.write_bytes(b"name: x\nstages: \xff\n")
    with pytest.raises(RecipeError, match=r"b\.yaml:2: not UTF-8 at byte 16"):
        load_recipe(path)
    path.write_bytes(b"#" * 4_000_001)
    with pytest.raises(RecipeError, match="larger than"):
        load_recipe(path)


def test_a_public_path_offers_a_class_defined_in_another_room_and_nothing_else() -> None:
    import types

    from tamis.dedup.exact.workflow import ExactDeduplicationWorkflow
    from tamis.recipe.targets import _is_offered
    from tamis.stages.deduplication.exact import workflow

    assert _is_offered(workflow, "ExactDeduplicationWorkflow", ExactDeduplicationWorkflow)
    own = types.ModuleType("tamis.stages.own")
    own.__all__ = ["Popen"]  # type: ignore[attr-defined]
    import subprocess

    assert not _is_offered(own, "Popen", subprocess.Popen)  # not of Tamis
    assert not _is_offered(workflow, "annotations", ExactDeduplicationWorkflow)  # not listed
    foreign = types.ModuleType("mystages")
    foreign.__all__ = ["ExactDeduplicationWorkflow"]  # type: ignore[attr-defined]
    assert not _is_offered(foreign, "ExactDeduplicationWorkflow", ExactDeduplicationWorkflow)
