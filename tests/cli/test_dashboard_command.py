"""`tamis dashboard`, and `--dashboard` beside a run: real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import SRC, tamis
from tests.support.made_run import make_run
from tests.support.run_dirs import run_dir_path
from tests.support.slow_run import recipe, stages

STAGES = stages()
RECIPE = recipe("watched", "files_per_partition: 1")


@contextlib.contextmanager
def started(*args: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "tamis.cli.start", *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=cwd
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def news(url: str, seen: str = "") -> dict[str, dict[str, str]]:
    with urllib.request.urlopen(f"{url}fragments?seen={seen}", timeout=20) as answer:
        found: dict[str, dict[str, str]] = json.load(answer)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for k in range(20):
        lines = [json.dumps({"n": 10 * k + i, "text": "word " * 30}) for i in range(10)]
        (tmp_path / f"in/{k:02}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "user_stages.py").write_text(STAGES)
    (tmp_path / "slow.yaml").write_text(RECIPE)
    return tmp_path


def test_a_finished_run_is_shown_until_ctrl_c(tmp_path: Path) -> None:
    make_run(run_dir_path(tmp_path / "out"), seconds=5, finished=True)
    with started("dashboard", "out", "--port", "0", cwd=tmp_path) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("dashboard: http://127.0.0.1:")
        assert "finished" in news(line.split()[1])["fragments"]["head"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_token_is_made_up_where_others_can_reach_it(tmp_path: Path) -> None:
    make_run(run_dir_path(tmp_path / "out"), seconds=2)
    with started("dashboard", "out", "--port", "0", "--host", "0.0.0.0", cwd=tmp_path) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        assert len(address.partition("?token=")[2]) == 32


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["dashboard", "."], "error: . holds no run of Tamis; give the output folder of a run\n"),
        (["dashboard", "out", "--token", "a b"], "error: --token: expected 8 to 256 letters, digits, - and _\n"),
        (
            ["dashboard", "out", "--host", "192.0.2.1", "--token", "12345678"],
            "error: no dashboard at 192.0.2.1 port 8787: ",
        ),
    ],
)
def test_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(run_dir_path(tmp_path / "out"), seconds=1)
    done = tamis(*args)
    assert done.exit_code in (1, 2)
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr


def test_next_to_a_run(place: Path) -> None:
    """The page moves while the run works, shows its end, and goes with it; its process is counted."""
    args = ("run", "slow.yaml", "--allow-module", "user_stages", "--dashboard", "--dashboard-port", "0", "--json")
    with started(*args, cwd=place) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        line = process.stderr.readline()
        assert line.startswith("dashboard: http://127.0.0.1:")
        url = line.split()[1]
        seen, images, last = "", set(), {}
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                found = news(url, seen)
            except OSError:
                break
            seen = str(found["version"])
            last.update(found["fragments"])
            images.add(last["memory"])
            if found["ended"]:
                break
            time.sleep(0.2)
        about = json.loads(process.stdout.read())
        assert (process.wait(30), about["status"], about["n_written"]) == (0, "finished", 200)
        with pytest.raises(OSError, match="refused"):
            news(url)
    assert len(images) >= 3
    assert "finished" in last["head"]
    assert "dashboard" in last["workers"]
    assert "watched" in last["head"]


def test_a_port_that_is_taken_does_not_hinder_a_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        args = (
            "run",
            "slow.yaml",
            "--allow-module",
            "user_stages",
            "--dashboard-port",
            str(port),
            "--json",
            "--sample",
            "5%",
        )
        done = tamis(*args)
    assert done.exit_code == 0
    assert done.stderr.startswith("dashboard: http://127.0.0.1:")
    assert f":{port}/" not in done.stderr
