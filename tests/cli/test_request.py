"""Requests: the recipe is read once; what is kept of them, and what `tamis resume` takes of an output, or refuses."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tamis.cli.jobs import command_file, resume
from tamis.cli.jobs.command_file import secret_names
from tamis.cli.jobs.jobs import Consent, FilterJob, RecipeJob, find_recipe
from tamis.cli.jobs.request import Request
from tamis.cli.jobs.resume import check_output, find_request
from tamis.cli.main import app
from tamis.errors import RecipeError, RunConflict, UsageError
from tamis.stores import options as stores
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import run_dir_path

RECIPE = """
name: t
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: in
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: ${output}
output: first
"""


def asked(overrides: dict[str, str] | None = None, modules: tuple[str, ...] = ()) -> Request:
    """Return what a resume says besides the output folder."""
    return Request(RecipeJob("", overrides or {}), consent=Consent(modules))


def test_the_recipe_is_read_once(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    request = Request(RecipeJob(str(recipe)))
    assert request.workflow() is None
    recipe.unlink()
    assert request.build()[0].name == "t"
    recipe.write_text(RECIPE.replace("name: t", "name: u"))
    assert replace(request, settings={"workers": 1}).build()[0].name == "u"


@pytest.mark.parametrize("left", ["dedup.json", "dedup", "dedup.lock"])
def test_a_deduplication_is_run_again_by_its_own_command(tmp_path: Path, left: str) -> None:
    (run_dir_path(tmp_path)).mkdir()
    (run_dir_path(tmp_path) / "plan.json").write_text("{}")  # of its last pass
    (run_dir_path(tmp_path) / left).write_text("{}")
    with pytest.raises(UsageError, match=r"is the output of a deduplication.*; run the same command again"):
        command_file.load(str(tmp_path))


def test_an_output_of_a_script_and_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no run of Tamis"):
        command_file.load(str(tmp_path))
    (run_dir_path(tmp_path)).mkdir()
    (run_dir_path(tmp_path) / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match="run the same Python script again"):
        command_file.load(str(tmp_path))


def made(folder: Path, **changes: Any) -> Path:
    """Return an output in `folder`/first that a command made there, with its recipe."""
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "in").mkdir(exist_ok=True)
    (folder / "first").mkdir(exist_ok=True)
    run_dir = run_dir_path(folder / "first")
    run_dir.mkdir()
    run_dir.chmod(0o755)
    job = {"kind": "recipe", "recipe": str(folder / "recipe.yaml"), "overrides": {}, "values": {}}
    command = {
        "version": 2,
        "cwd": str(folder),
        "job": job,
        "settings": {},
        "modules": [],
        "secrets": [],
        "storage": [],
    }
    (run_dir / "command.json").write_text(json.dumps(command | changes))
    return folder / "first"


def test_a_run_directory_that_others_can_write_to_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    output = made(tmp_path / "theirs")
    (run_dir_path(output)).chmod(0o777)
    with pytest.raises(RunConflict, match="can be written by others"):
        find_request(str(output), asked())
    assert Path.cwd() == tmp_path
    (run_dir_path(output)).chmod(0o755)
    (run_dir_path(output) / "plan.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunConflict, match=r"plan.json is a link"):
        find_request(str(output), asked())
    said = CliRunner().invoke(app, ["quarantine", str(output), "--retry", "--recipe", "copy"])
    assert (said.exit_code, "plan.json is a link" in said.output) == (5, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to another user")
def test_a_run_directory_of_another_user_is_not_read(tmp_path: Path) -> None:
    output = made(tmp_path)
    os.chown(run_dir_path(output), 65534, 65534)
    with pytest.raises(RunConflict, match="belongs to "):
        command_file.load(str(output))


def test_what_a_bucket_names_on_this_machine_is_reported_and_must_be_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    recipe = str(tmp_path / "there/recipe.yaml")
    job = {"kind": "recipe", "recipe": recipe, "overrides": {"output": "second"}, "values": {}}
    output = made(tmp_path / "there", modules=["mine"], job=job)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("tamis.cli.jobs.command_file.fetch_run_dir", lambda target: str(output))
    request = find_request("s3://bucket/first", asked(modules=("mine",)))
    assert (request.consent.module_folder, os.getcwd()) == (str(tmp_path / "here"), str(tmp_path / "there"))
    told = capsys.readouterr().err
    assert f"resumes {tmp_path}/there/recipe.yaml --set output=second, in the folder {tmp_path}/there" in told
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert request.build()[0].name == "t"
    assert (str(tmp_path / "here") in sys.path, str(tmp_path / "there") in sys.path) == (True, False)
    stat, foreign = os.stat, os.stat_result((0o40755, 0, 0, 1, 12345, 0, 0, 0, 0, 0))
    monkeypatch.setattr(resume.os, "stat", lambda path, **how: foreign if path == recipe else stat(path, **how))
    with pytest.raises(RunConflict, match=r"recipe.yaml, which belongs to user 12345"):
        find_request("s3://bucket/first", asked(modules=("mine",)))


def test_how_stores_are_reached_is_kept_and_for_a_bucket_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(stores.VARIABLE, "{}")
    monkeypatch.chdir(tmp_path)
    output = made(tmp_path)
    stores.remember_for_all(["endpoint_url=http://localhost:9000", "anon=true", "read_timeout=5"])
    command_file.save(Request(RecipeJob(str(tmp_path / "recipe.yaml"))), str(run_dir_path(output)))
    monkeypatch.setenv(stores.VARIABLE, "{}")
    find_request(str(output), asked())
    reached = stores.of_bucket("any")
    assert (reached.endpoint_url, reached.anon, reached.read_timeout) == ("http://localhost:9000", True, 5.0)
    monkeypatch.setenv(stores.VARIABLE, "{}")
    monkeypatch.setattr("tamis.cli.jobs.command_file.fetch_run_dir", lambda target: str(output))
    with pytest.raises(UsageError, match="add: --storage-option anon=true --storage-option endpoint_url=http:"):
        find_request("s3://bucket/first", asked())
    damaged = json.loads((run_dir_path(output) / "command.json").read_text()) | {"storage": ["secret=x"]}
    (run_dir_path(output) / "command.json").write_text(json.dumps(damaged))
    with pytest.raises(RunConflict, match=r"is damaged .storage: --storage-option: secret is a credential"):
        command_file.load(str(output))


def test_a_shard_continues_as_that_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    run_dir = run_dir_path(tmp_path / "first/shard-00001-of-00002")
    run_dir.mkdir(parents=True)
    run_dir.chmod(0o755)
    request = Request(RecipeJob("recipe.yaml"), {"shard": "1/2", "merge": False})
    command_file.save(request, str(run_dir))
    assert check_output(request, str(run_dir.parent)).settings["shard"] == "1/2"
    assert find_request(str(run_dir.parent), asked()).settings == {"shard": "1/2", "merge": False}
    kept = json.loads((run_dir / "command.json").read_text())
    for value in ("2/2", 1, "all"):
        (run_dir / "command.json").write_text(json.dumps(kept | {"settings": {"shard": value}}))
        with pytest.raises(RunConflict, match=r"damaged .settings.shard"):
            command_file.load(str(run_dir.parent))


def test_resume_continues_in_the_named_directory_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = made(tmp_path)
    run_dir_path(output).rename(run_dir_path(tmp_path / "moved"))
    output = output.rename(tmp_path / "moved")
    said = CliRunner().invoke(app, ["resume", "moved"])
    assert said.exit_code == 2
    assert f"writes to {tmp_path}/first now, not to {tmp_path}/moved" in said.output
    assert not (tmp_path / "first").exists()
    assert output.exists()


def test_resume_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("nothere", "not/here"):
        with pytest.raises(UsageError, match=f"there is no folder and no recipe called {name}; give the output folder"):
            find_request(name, asked())


def test_a_folder_hides_no_shipped_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    assert find_recipe("code").endswith("presets/code.yaml")
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="no such recipe: mine"):
        find_recipe("mine")
    (tmp_path / "books").write_text(RECIPE)
    assert find_recipe("books") == "books"


def test_addresses_of_alerts_are_secrets(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        RECIPE
        + "hook: https://chat.example/unset\nalerts:\n  sinks:\n    chat: {webhook: '${hook}'}\n    mine: {command: "
        "'true'}\n"
    )
    hook = "https://chat.example/hooks/T0123"
    by_name = {
        "alerts.sinks.chat.webhook": "http://a",
        "alerts.sinks.mine.command": "notify-me x",
        "alerts.every": "1min",
    }
    assert secret_names(by_name) == {"alerts.sinks.chat.webhook", "alerts.sinks.mine.command"}
    request = Request(RecipeJob(str(tmp_path / "recipe.yaml"), {"hook": hook, "alerts.sinks.mine.timeout": "3"}))
    request.build()
    command_file.save(request, str(tmp_path))
    kept = json.loads((tmp_path / "command.json").read_text())
    assert (kept["job"]["overrides"], kept["secrets"]) == ({"alerts.sinks.mine.timeout": "3"}, ["hook"])


def test_consent_to_code_of_models_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        RECIPE.replace("file_paths: in", "file_paths: in\n    trust_remote_code: true")
    )
    with pytest.raises(RecipeError, match="add --trust-remote-code to the command"):
        Request(RecipeJob(str(tmp_path / "recipe.yaml"))).build()
    request = Request(RecipeJob(str(tmp_path / "recipe.yaml")), consent=Consent(trust_remote_code=True))
    command_file.save(request, str(tmp_path))
    assert "trust" not in (tmp_path / "command.json").read_text()
    said = CliRunner().invoke(app, ["plan", str(tmp_path / "recipe.yaml")])
    assert (said.exit_code, "stages.0.trust_remote_code" in said.output) == (2, True)
    said = CliRunner().invoke(app, ["plan", str(tmp_path / "recipe.yaml"), "--trust-remote-code"])
    assert "JsonlReader has no parameter 'trust_remote_code'" in said.output


def test_a_filter_is_saved_and_read_back_by_its_fields(tmp_path: Path) -> None:
    (run_dir_path(tmp_path)).mkdir(mode=0o755)
    request = Request(FilterJob("c4", "/data/${in}", "/data/out"), {"memory": "1GB", "fresh": True})
    command_file.save(request, str(run_dir_path(tmp_path)))
    saved = command_file.load(str(tmp_path))
    assert (saved.job, saved.settings) == (request.job, {"memory": "1GB"})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"version": 1}, "version"),
        ({"cwd": "here"}, "cwd"),
        ({"job": None}, "job"),
        ({"job": {"kind": "shell", "command": "true"}}, "job"),
        ({"job": {"kind": "recipe", "recipe": "relative.yaml"}}, "recipe"),
        ({"job": {"kind": "recipe", "recipe": "/r.yaml", "overrides": {"a": 1}}}, r"overrides\.a"),
        ({"job": {"kind": "recipe", "recipe": "/r.yaml", "allow": ["os"]}}, "job"),
        ({"job": {"kind": "filter", "sets": "c4", "source": ["/in"], "target": "/out"}}, "source"),
        ({"job": {"kind": "filter", "sets": "c4"}}, "job"),
        ({"job": {"kind": "video", "source": "/a", "target": "/b", "options": {"preset": "os.system"}}}, "preset"),
        ({"settings": {"memory": "lots"}}, r"settings\.memory"),
        ({"settings": {"fresh": True}}, r"settings\.fresh"),
        ({"settings": {"executor": "mine"}}, r"settings\.executor"),
        ({"settings": {"alerts": "/their/rules.yaml"}}, r"settings\.alerts"),
        ({"modules": "os"}, "modules"),
        ({"secrets": [1]}, "secrets"),
        ({"storage": None}, "storage"),
    ],
)
def test_values_that_no_command_writes_are_refused(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    output = made(tmp_path, **changes)
    with pytest.raises(RunConflict, match=rf"command\.json is damaged \(.*{field}"):
        command_file.load(str(output))
