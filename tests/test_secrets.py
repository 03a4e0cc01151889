"""Secrets among parameters: what is one, what stands for it, and that no file, message or error of a run tells it."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor, Pipeline, ProcessingStage, Secret, secrets
from tamis.cli.jobs.jobs import Consent, RecipeJob
from tamis.cli.jobs.request import Request
from tamis.cli.jobs.resume import find_request
from tamis.engine.job import make_job
from tamis.engine.run.identity import describe_job, differences
from tamis.engine.schema import StageDescription
from tamis.errors import RecipeError, RunConflict, TamisError, UsageError
from tamis.recipe.load import load_recipe
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.support.command import tamis as command
from tests.support.run_dirs import run_dir_path

KEY = "sk-0123456789abcdef"


@dataclass(repr=False)
class Ask(ProcessingStage[Any, Any]):
    """A user's stage: asks a model, and tells everything when it fails."""

    api_key: str = ""
    options: Any = None
    limit: int = 3
    fail: bool = False
    name: str = "ask"

    def process(self, task: Any) -> Any:
        if self.fail:
            raise ValueError(f"401 for key {self.api_key}")
        return task


# -- what is one ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apiKey",
        "APIKEY",
        "OPENAI_API_KEY",
        "password",
        "passwd",
        "db_pwd",
        "client_secret",
        "secret",
        "secrets",
        "credentials",
        "authorization",
        "access-token",
        "aws_secret_access_key",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert secrets.kind_of(name) == secrets.CERTAIN


@pytest.mark.parametrize(
    "name",
    [
        "text",
        "key_field",
        "token_column",
        "password_file",
        "secret_name",
        "api_key_env",
        "auth_url",
        "tokenizer",
        "author",
        "keyboard",
        "access",
        "max_token_count",
        "",
        "compass",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert secrets.kind_of(name) == ""


def test_a_secret_is_a_text_that_is_never_shown() -> None:
    made = Secret(KEY)
    assert (made, len(made), f"Bearer {made}", made + "x") == (KEY, len(KEY), f"Bearer {KEY}", KEY + "x")
    assert KEY not in repr(made)
    assert KEY not in repr({"a": [made]})
    again = pickle.loads(pickle.dumps(made))
    assert (again, type(again)) == (KEY, Secret)


class SecretStr:
    """As pydantic has it."""

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        return self._value


def described(stage: Ask) -> list[StageDescription]:
    return describe_job(make_job("p", [*JsonlReader("in/").decompose(), stage, JsonlWriter("out")]), {})


@pytest.mark.parametrize(
    "options",
    [
        {"storage_options": {"key": "AKIA-0123456789abcd", "secret": KEY}},
        {"headers": {"Authorization": f"Bearer {KEY}"}, "proxies": [f"http://me:{KEY}@proxy/"]},
        {"auth": ("me", KEY)},
        Secret(KEY),
        SecretStr(KEY),
        [Secret(KEY), {"x": SecretStr(KEY)}],
        {"passwords": {"a": KEY, "b": [KEY]}},
        lambda text, api_key=KEY: text,
        lambda text, *, token=KEY: text,
    ],
    ids=range(9),
)
def test_a_description_of_stages_reports_no_secret(options: Any) -> None:
    told = json.dumps([d.to_dict() for d in described(Ask(api_key=KEY, options=options))])
    assert KEY not in told
    assert "AKIA" not in told
    assert '"limit": 3' in told


def test_a_variable_around_a_function_is_named_too() -> None:
    password = KEY
    assert KEY not in str(described(Ask(options=lambda text: text + password)))


def test_another_secret_makes_no_other_run_but_another_parameter_does() -> None:
    first = described(Ask(KEY, {"key": "id", "token": "a"}))
    assert differences(first, described(Ask("another key", {"key": "id", "token": "a"}))) == []
    (changed,) = differences(first, described(Ask(KEY, {"key": "url", "token": "a"})))
    assert changed == f"{__name__}.Ask: options.key changed"
    assert differences(first, described(Ask(KEY, {"key": "id", "token": "a"}, limit=4))) != []


def test_what_is_known_is_taken_out_of_any_text() -> None:
    secrets.learn(Ask("a long password"), {"token": "short", "note": "plain words here"})
    secrets.learn_values({"x.secret": "deep as well"})
    text = "a long password, short, plain words here, deep as well, ftp://u:pw@host"
    assert secrets.hide(text) == "<secret>, short, plain words here, <secret>, ftp://u:<secret>@host"


# -- runs -------------------------------------------------------------------------------------------------------------
def files_with(output: Path, text: str) -> list[str]:
    """Return the files of an output and of its run directory that contain a text."""
    files = [p for folder in (output, run_dir_path(output)) for p in folder.rglob("*") if p.is_file()]
    return [str(p) for p in files if text.encode() in p.read_bytes()]


def documents(folder: Path) -> str:
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(5)))
    return str(folder)


def test_no_file_of_a_run_and_no_error_reports_a_secret(tmp_path: Path) -> None:
    source, output = documents(tmp_path / "in"), tmp_path / "out"

    def run(**parameters: Any) -> Any:
        stages = [
            JsonlReader(source),
            Ask(KEY, {"secret": Secret("open sesame")}, **parameters),
            JsonlWriter(str(output)),
        ]
        return Pipeline("p", stages=stages).execute(InProcessExecutor(), quarantine_limit="100%", fail_fast=False)

    result = run(fail=True)
    assert result.ledger.quarantined.n == 5
    assert (
        "401 for key <secret>"
        in (run_dir_path(output) / "quarantine" / "quarantine-000000-000000000000000.jsonl").read_text()
    )
    assert files_with(output, KEY) == files_with(output, "open sesame") == []
    with pytest.raises(RunConflict, match=r"limit 3 -> 4"):
        run(fail=True, limit=4)


def test_an_error_while_a_recipe_is_built_reports_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secretive.py").write_text(
        "class Refuses:\n    def __init__(self, password):\n        raise ValueError(f'{password} is too short')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "r.yaml").write_text("name: t\nstages:\n  - _target_: secretive.Refuses\n    password: ${env:PW}\n")
    monkeypatch.setenv("PW", "correct horse")
    with pytest.raises(RecipeError, match=r"refused its parameters: <secret> is too short"):
        load_recipe(str(tmp_path / "r.yaml"), ["secretive"])
    sys.modules.pop("secretive")


RECIPE = """
name: t
model: small
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: {source}
  - _target_: asking.Ask
    api_key: ${{mine}}
    model: ${{model}}
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: {output}
mine: none
"""
ASKING = """
from tamis import ProcessingStage

class Ask(ProcessingStage):
    name = "ask"
    def __init__(self, api_key, model):
        self.api_key, self.model = api_key, model
    def process(self, task):
        return task
"""


def test_secrets_given_by_set_are_required_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the name says nothing: its value is found under the name of a secret."""
    source, output = documents(tmp_path / "in"), tmp_path / "out"
    (tmp_path / "r.yaml").write_text(RECIPE.format(source=source, output=output))
    (tmp_path / "asking.py").write_text(ASKING)
    monkeypatch.chdir(tmp_path)
    allow = ("--allow-module", "asking", "-q")
    told = command("run", "r.yaml", "--set", f"mine={KEY}", "--set", "model=large", "--memory", "400MB", *allow)
    assert told.exit_code == 0, told.output
    assert files_with(output, KEY) == []
    kept = json.loads((run_dir_path(output) / "command.json").read_text())
    assert (kept["job"]["overrides"], kept["secrets"]) == ({"model": "large"}, ["mine"])
    for changes, why in (
        ({}, "whose value is not saved; give it again: --set mine=VALUE"),
        ({"model": "x"}, "--set goes with"),
    ):
        with pytest.raises(UsageError, match=why):
            find_request(str(output), Request(RecipeJob("", changes), consent=Consent(("asking",))))
    told = command("resume", output, "--set", "mine=another key", *allow)
    assert (told.exit_code, "finished earlier" in told.output) == (0, True), told.output


def test_messages_of_failed_runs_tell_no_secret(tmp_path: Path) -> None:
    class Broken(Ask):
        def setup(self, worker_metadata: Any = None) -> None:
            raise RuntimeError(f"cannot log in with {self.api_key}")

    stages = [JsonlReader(documents(tmp_path / "in")), Broken(KEY), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(TamisError, match="cannot log in with <secret>"):
        Pipeline("p", stages=stages).execute(InProcessExecutor(), fail_fast=False)
    assert files_with(tmp_path / "out", KEY) == []


def test_values_that_make_up_attributes_and_modules_are_not_searched() -> None:
    class Eager:
        def __getattr__(self, name: str) -> None:
            raise OSError(f"{name}: cannot open shared object file")

    class Stage:
        def __init__(self) -> None:
            self.library, self.module = Eager(), secrets

    secrets.learn(Stage())
    assert not secrets.is_secret(Eager())
