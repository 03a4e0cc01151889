"""`tamis metrics`, and `--metrics-port` beside a run: real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
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
from tests.support.strict_exposition import parse

STAGES = stages()
RECIPE = recipe("measured", "blocksize: 100kB")


@contextlib.contextmanager
def started(*args: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "tamis.cli.start", *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    while line := process.stdout.readline():
        if found := re.search(r"metrics: (http://127\.0\.0\.1:[0-9]+/metrics)", line):
            return found[1]
    raise AssertionError("it said no address")


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": i, "text": "x" * 10_000}) for i in range(200)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "user_stages.py").write_text(STAGES)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def test_figures_are_printed_once(tmp_path: Path) -> None:
    make_run(run_dir_path(tmp_path / "out"), seconds=20)
    told = tamis("metrics", tmp_path / "out", "--once")
    assert told.exit_code == 0
    assert parse(told.stdout)["tamis_up"] == {(): 1.0}


def test_a_run_is_served_until_ctrl_c(tmp_path: Path) -> None:
    make_run(run_dir_path(tmp_path / "out"), seconds=20)
    with started("metrics", "out", "--port", "0", cwd=tmp_path) as process:
        url = address(process)
        assert parse(read(url))["tamis_memory_budget_bytes"] == {(): 2e9}
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_a_run_serves_its_own_figures_while_it_works(folder: Path) -> None:
    with started(
        "run", "recipe.yaml", "--allow-module", "user_stages", "-q", "--metrics-port", "0", cwd=folder
    ) as process:
        url = address(process)
        deadline = time.monotonic() + 60
        while True:
            found = parse(read(url))
            if found.get("tamis_documents_total", {}).get((("state", "written"),), 0) > 0:
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        assert found["tamis_up"] == {(): 1.0}
        assert found["tamis_memory_budget_bytes"] == {(): 600e6}
        assert 0 < found["tamis_memory_used_bytes"][()] <= 600e6
        assert [dict(labels)["stage"] for labels in found["tamis_stage_seconds_total"]] == ["slow"]
        assert process.wait(60) == 0
    finished = parse(tamis("metrics", folder / "out", "--once").stdout)
    assert finished["tamis_finished"] == {(): 1.0}
    assert finished["tamis_documents_total"][("state", "read"),] == 200.0
    assert finished["tamis_documents_total"][("state", "written"),] == 200.0


def test_a_port_that_is_taken_ends_the_command_before_the_run(folder: Path) -> None:
    make_run(run_dir_path(folder / "other"), seconds=5)
    with started("metrics", "other", "--port", "0", cwd=folder) as process:
        port = address(process).rpartition(":")[2].partition("/")[0]
        before = os.getcwd()
        os.chdir(folder)
        try:
            told = tamis("run", "recipe.yaml", "--allow-module", "user_stages", "--metrics-port", port)
        finally:
            os.chdir(before)
    assert told.exit_code == 2
    assert f"error: no metrics at 127.0.0.1 port {port}: " in told.stderr
    assert not (folder / "out").exists()


def test_wrong_usage(tmp_path: Path) -> None:
    assert "error: give the output folder of a run: tamis metrics clean/" in tamis("metrics").stderr
    assert "holds no run of Tamis" in tamis("metrics", tmp_path).stderr
    assert "error: --grafana and --rules are two files" in tamis("metrics", "--grafana", "--rules").stderr
    told = tamis("filter", "gopher", tmp_path, tmp_path / "out", "--metrics-host", "0.0.0.0")
    assert told.exit_code == 2


def test_the_files_for_grafana_and_prometheus_are_printed() -> None:
    import yaml

    observe = SRC / "tamis" / "observe"
    assert tamis("metrics", "--grafana").stdout == (observe / "metrics" / "grafana.json").read_text()
    told = tamis("metrics", "--rules").stdout
    assert told == (observe / "metrics" / "prometheus_rules.yml").read_text()
    names = [rule["alert"] for group in yaml.safe_load(told)["groups"] for rule in group["rules"]]
    assert len(names) == len(set(names)) == 12
