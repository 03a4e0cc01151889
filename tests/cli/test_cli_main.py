"""The command line as a whole: help, version, errors, imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tamis.cli.main import app
from tamis.errors import BudgetError, ConservationError, Incomplete, RunConflict, TamisError, UsageError
from tests.support.cli_runner import CliRunner

SRC = Path(__file__).parents[2] / "src"


def tamis(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "tamis.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=60, check=False)


def test_help_lists_the_commands_and_imports_nothing_heavy() -> None:
    code = (
        "import sys, tamis.cli.main as m\n"
        "try: m.app(['--help'])\n"
        "except SystemExit as e: assert not e.code\n"
        "print([n for n in ('numpy', 'pyarrow', 'numba', 'pandas', 'backports.zstd', 'yaml') if n in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for name in ("split", "inspect", "doctor"):
        assert name in done.stdout


@pytest.mark.parametrize("name", ["run", "plan", "resume", "quarantine", "inspect", "split", "doctor", "demo"])
def test_every_command_has_an_example(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert f"Example: tamis {name}" in result.output


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("tamis ")


@pytest.mark.parametrize(
    ("error", "code"),
    [(TamisError, 1), (UsageError, 2), (Incomplete, 3), (BudgetError, 4), (RunConflict, 5), (ConservationError, 6)],
)
def test_deliberate_errors_are_one_line_and_their_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: type[TamisError], code: int
) -> None:
    def fail(*_: object) -> None:
        raise error("it is so")

    monkeypatch.setattr("tamis.cli.doctor.command.examine", fail)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == code
    assert result.stderr == "error: it is so\n"


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tamis.cli.doctor.command.examine", interrupt)
    result = CliRunner().invoke(app, ["doctor"])
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_a_user_mistake_gives_no_traceback(tmp_path: Path) -> None:
    done = tamis("split", "nothing.jsonl", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: no such file: nothing.jsonl\n")


def test_an_unknown_command_is_a_usage_error() -> None:
    done = tamis("sieve")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n' * 10)
    command = f"{sys.executable} -m tamis.cli.main inspect a.jsonl --json | true"
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60, check=False
    )
    assert done.stderr == ""


def test_the_collector_is_on_in_a_command_and_untouched_where_it_was_on() -> None:
    """The console script turns it off while it loads.

    Who calls the commands from a program of his own keeps his setting.
    """
    code = (
        "import gc, sys; from tamis.cli import main, start\n"
        "def look(*a, **k): print(gc.isenabled(), gc.get_freeze_count() > 0); raise SystemExit\n"
        "main.Commands.__call__ = look\n"
        "sys.argv = ['tamis', 'doctor']\n"
        "START\n"
    )
    for begin, frozen in (("start.main()", True), ("main.main()", False)):
        done = subprocess.run(
            [sys.executable, "-c", code.replace("START", begin)], capture_output=True, text=True, check=False
        )
        assert done.stdout == f"True {frozen}\n", done.stderr


@pytest.mark.parametrize("words", [["join"], ["dedup", "remove"]])
def test_parts_of_what_is_done_as_a_whole_are_neither_made_nor_joined(words: list[str]) -> None:
    parts = CliRunner().invoke(app, [*words, "a", "b", "c", "--shard", "0/2"])
    assert (parts.exit_code, parts.stderr.startswith("error: no such option: --shard")) == (2, True)
    joined = CliRunner().invoke(app, ["merge", *words, "a", "b", "c"])
    assert (joined.exit_code, f"tamis {' '.join(words)} has no --shard" in joined.stderr) == (2, True)


def test_what_the_system_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/data/x.jsonl")

    monkeypatch.setattr("tamis.cli.doctor.command.examine", fail)
    result = CliRunner().invoke(app, ["doctor"])
    assert (result.exit_code, result.stderr) == (1, "error: /data/x.jsonl: Permission denied\n")


def test_a_recipe_that_cannot_be_shown(tmp_path: Path) -> None:
    missing = CliRunner().invoke(app, ["recipe", "show", str(tmp_path / "nothing.yaml")])
    assert (missing.exit_code, "cannot read the recipe: No such file" in missing.stderr) == (2, True)
    folder = CliRunner().invoke(app, ["recipe", "show", str(tmp_path)])
    assert (folder.exit_code, "cannot read the recipe: Is a directory" in folder.stderr) == (2, True)
