"""A real Prometheus scrapes real runs: every panel of the Grafana file and every alert rule is asked of it.

Debian's package `prometheus` (with promtool). Everything stays on this machine, in a temporary folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tamis.engine.monitor.database import RunDatabase
from tamis.observe.metrics.endpoint import MetricsEndpoint
from tamis.observe.metrics.run_metrics import RunMetrics
from tests.support.command import SRC, tamis
from tests.support.made_run import add_moment, make_run
from tests.support.run_dirs import run_dir_path
from tests.support.slow_run import recipe, stages

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs Prometheus: apt install prometheus",
)
OBSERVE = SRC / "tamis" / "observe"
CONFIG = """
global:
  scrape_interval: 500ms
  scrape_timeout: 400ms
  evaluation_interval: 1s
rule_files:
  - {rules}
scrape_configs:
  - job_name: tamis
    file_sd_configs:
      - files: [{targets}]
        refresh_interval: 1s
"""
STAGES = stages()
RECIPE = recipe("scraped", "blocksize: 100kB")


class Prometheus:
    """A server of its own, with its data in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.targets = folder / "targets.json"
        self.scrape([])
        (folder / "prometheus.yml").write_text(
            CONFIG.format(rules=OBSERVE / "metrics" / "prometheus_rules.yml", targets=self.targets)
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = open(folder / "prometheus.log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            cwd=folder,
            stdout=self.log,
            stderr=self.log,
        )
        wait_for(self._is_ready, "Prometheus to start")

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, "Prometheus ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def scrape(self, addresses: list[str]) -> None:
        fresh = self.targets.with_suffix(".new")
        fresh.write_text(json.dumps([{"targets": [a], "labels": {}} for a in addresses]))
        os.replace(fresh, self.targets)

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now; raise HTTPError if it is invalid."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float | None:
        found = self.ask(expression)
        return float(found[0]["value"][1]) if found else None

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


def wait_for(true: Any, what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path_factory.mktemp("prometheus"))
    yield made
    made.close()


def panels() -> list[tuple[str, str]]:
    """(title, expression) of all panels, with Grafana's variables replaced."""
    found = []
    for panel in json.loads((OBSERVE / "metrics" / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            plain = (
                target["expr"].replace("$instance", ".*").replace("$__rate_interval", "10s").replace("[5m]", "[10s]")
            )
            assert "$" not in plain
            found.append((panel["title"], plain))
    return found


def test_promtool_accepts_the_rules_and_the_figures(tmp_path: Path) -> None:
    subprocess.run(
        ["promtool", "check", "rules", OBSERVE / "metrics" / "prometheus_rules.yml"], check=True, capture_output=True
    )
    text = RunMetrics(make_run(tmp_path, seconds=20, n_gpus=1)).text()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_alerts_are_raised_when_they_should_be(tmp_path: Path) -> None:
    series = {
        "tamis_up": "1x30 0x40",
        "tamis_finished": "0x70",
        "tamis_sample_time_seconds": "1+60x70",
        "tamis_readable": "1x70",
        "tamis_memory_used_bytes": "700x9 900x5 700x60",
        "tamis_memory_budget_bytes": "1000x70",
        "tamis_pressure_level": "0x70",
        "tamis_read_bytes_total": "0+100x20 2000x50",
        "tamis_disk_free_bytes": "50e9x70",
        'tamis_documents_total{state="read"}': "1000x70",
        'tamis_documents_total{state="quarantined"}': "0x19 5x51",
    }
    expected = {
        8: set(),
        12: {"TamisMemoryNearBudget"},
        18: set(),
        25: {"TamisQuarantine"},
        38: {"TamisQuarantine", "TamisStopped"},
    }
    names = re.findall(r"alert: (\w+)", (OBSERVE / "metrics" / "prometheus_rules.yml").read_text())
    tests = {
        "rule_files": [str(OBSERVE / "metrics" / "prometheus_rules.yml")],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": k, "values": v} for k, v in series.items()],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": [{}] if name in raised else []}
                    for minute, raised in expected.items()
                    for name in names
                ],
            }
        ],
    }
    for one in tests["tests"][0]["alert_rule_test"]:  # type: ignore[index]
        if one["exp_alerts"]:
            one["exp_alerts"] = [_expected(one["alertname"], one["eval_time"])]
    (tmp_path / "rules.json").write_text(json.dumps(tests))  # YAML reads JSON
    done = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "rules.json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _expected(name: str, at: str) -> dict[str, Any]:
    import yaml

    rules = yaml.safe_load((OBSERVE / "metrics" / "prometheus_rules.yml").read_text())["groups"][0]["rules"]
    rule = next(r for r in rules if r["alert"] == name)
    value = {"TamisMemoryNearBudget": "90%", "TamisQuarantine": "0.5%"}.get(name, "")
    summary = re.sub(r"\{\{ \$labels\.instance \}\}", "", rule["annotations"]["summary"])
    summary = re.sub(r"\{\{ \$value[^}]*\}\}", value, summary)
    return {
        "exp_labels": {"severity": rule["labels"]["severity"]},
        "exp_annotations": {"summary": summary, "description": rule["annotations"]["description"]},
    }


def test_every_panel_shows_something(prometheus: Prometheus, tmp_path: Path) -> None:
    """A run that has everything: GPUs, a control group, alerts.

    It goes on while it is scraped, so that rates are known.
    """
    folder = make_run(run_dir_path(tmp_path), seconds=30, n_gpus=2)
    over = threading.Event()
    endpoint = MetricsEndpoint(RunMetrics(folder).text).start()

    def go_on() -> None:
        database = RunDatabase(str(folder / "run.sqlite"))  # of this thread alone
        second = 32
        while not over.wait(0.5):
            add_moment(database, time.time(), second, 600, 4, 2)
            database.put("samples", **_with_group(second))
            database.flush()
            second += 2
        database.close()

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        prometheus.scrape([f"127.0.0.1:{endpoint.port}"])
        wait_for(
            lambda: prometheus.value("count_over_time(tamis_read_bytes_total[1m])") not in (None, 1, 2, 3), "scrapes"
        )
        empty: list[tuple[str, str]] = []
        for _ in range(30):
            empty = [(title, expression) for title, expression in panels() if not prometheus.ask(expression)]
            if not empty:
                break
            time.sleep(0.5)
        assert empty == []
        healths = {r["name"]: r["health"] for g in prometheus.get("rules")["groups"] for r in g["rules"]}
        assert len(healths) == 12
        assert set(healths.values()) == {"ok"}
        families = {m["metric"]["__name__"] for m in prometheus.ask('{__name__=~"tamis_.*"}')}
        asked = {name for _, expression in panels() for name in re.findall(r"tamis_\w+", expression)}
        assert asked <= families
    finally:
        over.set()
        writer.join()
        endpoint.close()
        prometheus.scrape([])


def _with_group(second: int) -> dict[str, Any]:
    return {
        "at": time.time() + 0.001,
        "used_bytes": 900_000_000,
        "budget_bytes": 2_000_000_000,
        "documents": 1000 * second,
        "written": 600 * second,
        "dropped": 390 * second,
        "quarantined": second,
        "read_bytes": 10**6 * second,
        "left_bytes": 10**9 - 10**6 * second,
        "level": 0,
        "workers": json.dumps({1: 100}),
        "disk_free_bytes": 10**12,
        "machine_used_bytes": 1,
        "machine_total_bytes": 2,
        "cgroup_used_bytes": 1,
        "cgroup_limit_bytes": 2,
        "psi_some": 0.0,
        "psi_full": 0.0,
        "cpu_s": float(second),
        "n_processes": 3,
        "server_bytes": 5,
        "supervisor_bytes": 6,
    }


def test_a_real_run_is_scraped(prometheus: Prometheus, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": i, "text": "x" * 10_000}) for i in range(300)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "user_stages.py").write_text(STAGES)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "tamis.cli.start", "run", "recipe.yaml", "--allow-module", "user_stages", "-q"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run = subprocess.Popen(
        [*command, "--metrics-port", str(port)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    here = f'{{instance="127.0.0.1:{port}"}}'
    try:
        prometheus.scrape([f"127.0.0.1:{port}"])
        wait_for(lambda: prometheus.value(f"tamis_up{here}") == 1, "the run to be seen")
        wait_for(lambda: (prometheus.value(f"rate(tamis_read_bytes_total{here}[10s])") or 0) > 0, "the run to read")
        assert prometheus.value(f"tamis_memory_budget_bytes{here}") == 600e6
        assert prometheus.value(f"max_over_time(tamis_memory_used_bytes{here}[1m])") <= 600e6  # type: ignore[operator]
        for _, expression in panels():
            prometheus.ask(expression)  # a wrong one raises
        assert run.wait(100) == 0
        wait_for(lambda: prometheus.value(f"up{here}") in (None, 0.0), "Prometheus to notice the end")
    finally:
        run.kill()
        run.wait()
        prometheus.scrape([])
    resets = prometheus.value(f"sum(resets(tamis_documents_total{here}[5m]))")
    assert resets == 0
    assert "tamis_finished 1\n" in tamis("metrics", tmp_path / "out", "--once").stdout
