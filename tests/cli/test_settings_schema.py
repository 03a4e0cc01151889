"""Every declared setting arrives by each way: command line, recipe, Python, environment, executor, resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.backends.base import BaseExecutor
from tamis.cli.jobs import command_file
from tamis.cli.jobs.jobs import RecipeJob
from tamis.cli.jobs.request import Request
from tamis.cli.main import app
from tamis.cli.parsing.arguments import Command, Commands, option_sets
from tamis.cli.parsing.options import LAUNCH, JobOptions, LaunchOptions
from tamis.engine.run.settings import SETTINGS, RunSettings, Scope, Setting
from tamis.errors import RecipeError, UsageError
from tamis.recipe.load import RECIPE_SETTINGS, load_recipe
from tests.support.run_dirs import run_dir_path

# One command of each scope.
COMMANDS = {
    Scope.DOCUMENTS: "join",
    Scope.SHARDS: "dedup exact",
    Scope.STAGES: "curate",
    Scope.ONE_PASS: "filter",
    Scope.RECIPE: "run",
}
# Values other than the default, as text and as the value that arrives.
VALUES: dict[str, tuple[str, Any]] = {
    "memory": ("1GB", "1GB"), "workers": ("3", 3), "scratch": (".", "."), "timeout": ("7.5", 7.5),
    "quarantine_limit": ("2%", "2%"), "fail_fast": ("true", True), "worker_output": ("true", True),
    "gpu_memory": ("8GB", "8GB"),
    "blocksize": ("16MB", "16MB"),
    "file_size": ("1GB", "1GB"),
    "partition_by": ("language,topic", "language,topic"),
    "fresh": ("true", True), "shard": ("1/2", "1/2"), "merge": ("true", True), "max_record": ("1MB", "1MB"),
    "keep_rejected": ("true", True), "no_samples": ("true", True), "gpu_overflow": ("cut", "cut"),
    "sample": ("10%", "10%"),
    "progressive": ("true", True), "on_infeasible": ("sample", "sample"), "mode": ("batch", "batch"),
    "run_dir": ("out", "out"), "queue": ("64MB", "64MB"), "executor": ("ray", "ray"), "address": ("host:1", "host:1"),
}  # fmt: skip
WRONG = {"SIZE": "much", "SHARE": "200%", "SECONDS": "-1", "NUMBER": "0", "I/N": "2/2", "FIELDS": "a,a"}
RECIPE = "name: t\nstages:\n  - _target_: tamis.stages.text.io.reader.JsonlReader\n    file_paths: in\nsettings:\n"
every_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)


def command_of(words: str) -> Command:
    found: Commands | Command = app
    for word in words.split():
        assert isinstance(found, Commands)
        found = found[word]
    assert isinstance(found, Command)
    return found


def typed(setting: Setting, text: str) -> list[str]:
    return [setting.flag] if setting.kind.type is bool else [setting.flag, text]


def options_of(words: str, *arguments: str) -> JobOptions:
    """Return the options of a job that a command gets."""
    command = command_of(words)
    values = command.read([*(["x"] * sum(p.required for p in command.arguments)), *arguments])
    built = [
        options.build({p.name: values[p.name] for p in options.parameters})
        for options in option_sets(command.function).values()
    ]
    (job_options,) = (options for options in built if isinstance(options, JobOptions))
    return job_options


def test_a_new_setting_has_a_value_here() -> None:
    assert VALUES.keys() == SETTINGS.keys() | {s.name for s in LAUNCH.values() if s.is_resumed}
    assert [name for name, s in SETTINGS.items() if VALUES[name][1] == s.default] == []


@every_setting
def test_from_the_command_line_by_the_commands_of_its_scope(setting: Setting) -> None:
    text, value = VALUES[setting.name]
    for scope, words in COMMANDS.items():
        if setting.scope is not None and setting.scope <= scope:
            assert options_of(words, *typed(setting, text)).settings == {setting.name: value}
        else:
            with pytest.raises(UsageError, match="no such option"):
                options_of(words, *typed(setting, text))
    wrong = "else" if setting.kind.choices else WRONG.get(setting.kind.metavar)
    if setting.scope is not None and wrong is not None:
        with pytest.raises(UsageError, match=setting.flag if setting.kind.metavar != "I/N" else "shard"):
            options_of("run", setting.flag, wrong)


@every_setting
def test_from_a_recipe(setting: Setting, tmp_path: Path) -> None:
    text, value = VALUES[setting.name]
    (tmp_path / "r.yaml").write_text(f"{RECIPE}  {setting.name}: {text}\n")
    if not setting.in_recipes:
        with pytest.raises(RecipeError, match="unknown setting"):
            load_recipe(tmp_path / "r.yaml")
        return
    request = Request(RecipeJob(str(tmp_path / "r.yaml")))
    _, settings = request.build()
    chosen_by = {"file_size": "default", "stages": "recipe", setting.name: "recipe"}
    assert settings == {"file_size": "256MB", setting.name: value, "chosen_by": chosen_by}
    assert (
        RunSettings.from_mapping({**settings, "chosen_by": {setting.name: "recipe"}}).origin(setting.name) == "recipe"
    )
    _, settings = Request(RecipeJob(str(tmp_path / "r.yaml")), {setting.name: setting.default}).build()
    assert settings[setting.name] == setting.default


@every_setting
def test_from_python(setting: Setting) -> None:
    value = VALUES[setting.name][1]
    settings = RunSettings.from_mapping({setting.name: value}, {})
    assert (getattr(settings, setting.name), settings.origin(setting.name)) == (value, "user")
    assert RunSettings.from_mapping({setting.name: None}, {}) == RunSettings.from_mapping({}, {})
    with pytest.raises(UsageError, match=setting.name if setting.name != "shard" else "shard"):
        RunSettings.from_mapping({setting.name: object()}, {})


@every_setting
def test_from_the_environment(setting: Setting) -> None:
    text, value = VALUES[setting.name]
    variables = {setting.variable: text} if setting.variable else {f"TAMIS_{setting.name.upper()}": text}
    settings = RunSettings.from_mapping({}, variables)
    expected = (value, "environment") if setting.variable else (setting.default, "default")
    assert (getattr(settings, setting.name), settings.origin(setting.name)) == expected
    if setting.variable:
        assert getattr(RunSettings.from_mapping({setting.name: value}, {setting.variable: "x"}), setting.name) == value


@every_setting
def test_from_the_config_of_an_executor(setting: Setting) -> None:
    value = VALUES[setting.name][1]
    if setting.executor_key:
        assert BaseExecutor({setting.executor_key: value}).settings() == {setting.name: value}
    else:
        with pytest.raises(UsageError, match="unknown config key"):
            BaseExecutor({setting.name: value})


@pytest.mark.parametrize("name", VALUES)
def test_by_a_resume(name: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE)
    (run_dir_path(tmp_path)).mkdir(mode=0o755)
    setting, value = {**SETTINGS, **LAUNCH}[name], VALUES[name][1]
    settings = {name: value} if name in SETTINGS else {}
    launch = LaunchOptions(**{name: value}) if name in LAUNCH else LaunchOptions()
    command_file.save(Request(RecipeJob(str(tmp_path / "r.yaml")), settings, launch), str(run_dir_path(tmp_path)))
    saved = command_file.load(str(tmp_path))
    if setting.is_resumed:
        assert (saved.settings, saved.launch) == (settings, launch)
    else:
        assert (saved.settings, saved.launch) == ({}, LaunchOptions())


def test_the_reference_names_all() -> None:
    from tamis.cli.reference import reference, with_settings

    page = reference()
    assert [s.name for s in SETTINGS.values() if s.scope is not None and f"`{s.flag}`" not in page] == []
    table = with_settings("| setting | meaning | default |\n|---|---|---|\n| `schema` |")
    assert [name for name in RECIPE_SETTINGS if f"| `{name}` |" not in table] == []
