"""Executors of a cluster as they are made and refused: nothing is started here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tamis import files
from tamis.backends import registry
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.ray_cluster.executor import reachable_host
from tamis.backends.ray_cluster.head import Head, HeadOptions, free_port
from tamis.backends.ray_cluster.nodes import RayConnection
from tamis.backends.ray_cluster.options import RayOptions
from tamis.backends.ray_data import RayDataExecutor
from tamis.backends.xenna import XennaExecutor
from tamis.cli.jobs.launch import Launch
from tamis.cli.main import app
from tamis.cli.parsing.options import LaunchOptions
from tamis.cli.plan.machine import cluster_figures, cluster_lines
from tamis.core import client
from tamis.core.client import RayClient, SlurmRayClient
from tamis.errors import UsageError
from tamis.recipe.load import load_recipe
from tests.support.cli_runner import CliRunner


def test_unknown_keys_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'reserved_cpus'"):
        RayActorPoolExecutor(config={"reserved_cpu": 1})
    with pytest.raises(UsageError, match="did you mean 'autoscale_interval_s'"):
        XennaExecutor(config={"autoscale_interval": 1})


def test_settings_of_xenna_reach_it() -> None:
    made = XennaExecutor({"logging_interval": 5, "execution_mode": "batch", "cpu_allocation_percentage": 0.5})
    assert made.ray_options() == RayOptions(
        logging_interval=5, execution_mode="batch", cpu_allocation_percentage=0.5, autoscale_interval_s=180
    )
    assert made.settings() == {"mode": "batch"}
    assert XennaExecutor({"ignore_failures": True}).settings() == {"quarantine_limit": "100%"}
    assert RayDataExecutor({"ignore_failures": True, "memory": "1GB"}).settings() == {
        "quarantine_limit": "100%",
        "memory": "1GB",
    }


@pytest.mark.parametrize(
    "config", [{"cpu_allocation_percentage": 0}, {"cpu_allocation_percentage": 1.5}, {"logging_interval": 0}]
)
def test_xenna_refuses_what_cannot_be(config: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        XennaExecutor(config)


def test_xenna_uses_every_node() -> None:
    with pytest.raises(ValueError, match="ignore_head_node"):
        XennaExecutor(ignore_head_node=True)


def test_a_runtime_environment_is_variables_only() -> None:
    with pytest.raises(UsageError, match="only env_vars"):
        RayActorPoolExecutor({"runtime_env": {"pip": ["x"]}})


def test_where_ray_is_missing_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'tamis\[ray\]'"):
        Head().start()


def test_a_port_that_is_taken_is_skipped() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert free_port(port) != port
    assert free_port(0) > 0


def test_the_arguments_of_ray_start() -> None:
    told = Head(HeadOptions(num_cpus=3, object_store_bytes=80_000_000))._command("/tmp/x")
    assert told[told.index("--num-cpus") + 1] == "3"
    assert told[told.index("--object-store-memory") + 1] == "80000000"
    assert "--num-gpus" not in told
    assert told[told.index("--include-dashboard") + 1] == "false"


def test_clusters_have_a_token_of_their_own() -> None:
    one, other = Head(), Head()
    assert one.environment["RAY_AUTH_MODE"] == "token"
    assert one.environment["RAY_AUTH_TOKEN"] != other.environment["RAY_AUTH_TOKEN"]


def test_our_address_is_the_one_that_reaches_the_cluster() -> None:
    assert reachable_host("127.0.0.1:6379") == "127.0.0.1"
    assert reachable_host("localhost:6379") == "127.0.0.1"


def test_what_asks_for_a_cluster_without_an_address_gets_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may run on the same machine."""
    inits: list[Any] = []
    context = SimpleNamespace(gcs_address="10.0.0.1:6379")
    fake = SimpleNamespace(init=lambda **told: inits.append(told["address"]), get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_ADDRESS", "another:1")
    RayConnection().connect("auto")
    assert (inits, os.environ["RAY_ADDRESS"]) == (["auto"], "10.0.0.1:6379")


def test_a_client_checks_its_numbers() -> None:
    with pytest.raises(UsageError, match="num_cpus: expected a whole number"):
        RayClient(num_cpus=-1)
    assert (RayClient().address, RayClient().is_running) == ("", False)
    RayClient().stop()  # nothing to stop


class FakeHead:
    """Says that it runs, and starts nothing."""

    made: ClassVar[list[FakeHead]] = []
    address, dashboard_port, metrics_port = "10.0.0.1:6379", 8265, 8080
    environment: ClassVar[dict[str, str]] = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "abc"}

    def __init__(self, options: Any) -> None:
        self.is_running = False
        self.made.append(self)

    def start(self) -> None:
        self.is_running = True

    def stop(self) -> None:
        self.is_running = False


@pytest.fixture
def fake_head(monkeypatch: pytest.MonkeyPatch) -> list[FakeHead]:
    monkeypatch.setattr("tamis.core.client.Head", FakeHead)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.9:1")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setattr(FakeHead, "made", [])
    return FakeHead.made


def test_a_cluster_is_ended_where_its_start_fails(
    fake_head: list[FakeHead], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ray_targets.json").mkdir()  # no file can be put there
    started = RayClient(metrics_dir=str(tmp_path))
    with pytest.raises(OSError, match="ray_targets"):
        started.start()
    assert [head.is_running for head in fake_head] == [False]
    assert (started.address, os.environ["RAY_ADDRESS"], "RAY_AUTH_TOKEN" in os.environ) == ("", "10.0.0.9:1", False)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_NODEID", "0")
    monkeypatch.setenv("SLURM_NNODES", "2")
    monkeypatch.setenv("SLURM_SUBMIT_DIR", str(tmp_path / "absent"))
    with pytest.raises(OSError, match="absent"):
        SlurmRayClient().start()
    assert [head.is_running for head in fake_head] == [False, False]
    assert os.environ["RAY_ADDRESS"] == "10.0.0.9:1"


def test_a_cluster_that_died_leaves_no_address(fake_head: list[FakeHead]) -> None:
    started = RayClient()
    started.start()
    fake_head[0].is_running = False
    started.start()
    assert os.environ["RAY_ADDRESS"] == "10.0.0.1:6379"
    started.stop()
    assert os.environ["RAY_ADDRESS"] == "10.0.0.9:1"


def test_slurm_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UsageError, match="SLURM_JOB_ID is not set"):
        SlurmRayClient().start()


def test_a_node_stays_when_the_file_of_its_head_cannot_be_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_LOOK_S", 0.02)
    monkeypatch.setattr(client, "_GONE_S", 0.2)
    told, answers = ("head:1", "t"), [("head:1", "t"), None, ("head:1", "t"), None, None, ("head:1", "t")]
    asked: list[Any] = []
    monkeypatch.setattr(
        client, "_read_meeting", lambda where: asked.append(where) or (answers.pop(0) if answers else None)
    )
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    assert SlurmRayClient()._stay(process, "file", told) == 0  # ended by us, once the file was away for good
    assert process.poll() is not None
    assert len(asked) > 8


class Joining(SlurmRayClient):
    """A node that joins heads by name only: `joined` are the addresses, with what became of each."""

    def _join(self, address: str, token: str) -> Any:
        self.joined = [*getattr(self, "joined", []), address]
        files.write_text(self.meeting, "new:1 t2\n")  # the head begins again, elsewhere
        return subprocess.Popen(["sh", "-c", "exit 1" if address == "dead:1" else "sleep 60"], start_new_session=True)


def test_a_node_of_a_requeued_job_joins_the_head_of_this_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job has the same number; the address of the head that was killed with its first start lies there still."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "1", "SLURM_NNODES": "2", "SLURM_SUBMIT_DIR": str(tmp_path)}
    before, *_ = client._slurm(slurm)
    files.write_text(before, "killed:1 t0\n")
    slurm["SLURM_RESTART_COUNT"] = "1"
    meeting, rank, n_nodes = client._slurm(slurm)
    assert (meeting != before, rank, n_nodes) == (True, 1, 2)
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(client, "_LOOK_S", 0.05)
    monkeypatch.setattr(client, "_GONE_S", 0.3)
    node = Joining(worker_connect_timeout_s=20)
    node.meeting = meeting
    files.write_text(meeting, "dead:1 t1\n")  # a head that died before this node came, and was begun again
    ended = threading.Timer(1.0, lambda: Path(meeting).unlink())
    ended.start()
    with pytest.raises(SystemExit) as left:
        node.start()
    ended.join(timeout=30)
    assert (node.joined, left.value.code) == (["dead:1", "new:1"], 0)


def test_a_command_opens_the_executor_that_it_was_given() -> None:
    with Launch.of_options(LaunchOptions("xenna", "10.0.0.1:6379")).open_executor() as executor:
        assert isinstance(executor, XennaExecutor)
        assert executor.address == "10.0.0.1:6379"
    with Launch.of_options(LaunchOptions()).open_executor() as executor:
        assert executor is None
    with (
        pytest.raises(UsageError, match="--executor ray, ray_data, xenna"),
        Launch.of_options(LaunchOptions(address="x")).open_executor(),
    ):
        pass


def test_a_client_of_a_recipe_runs_as_long_as_the_command() -> None:
    calls: list[str] = []

    class Client:
        def start(self) -> None:
            calls.append("start")

        def stop(self) -> None:
            calls.append("stop")

    with Launch(LaunchOptions(), "ray_data", Client()).open_executor() as executor:
        assert isinstance(executor, RayDataExecutor)
        assert calls == ["start"]
    assert calls == ["start", "stop"]


def test_recipes_name_a_client_and_a_backend(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(
        "name: x\nbackend: ray_data\nray_client:\n  _target_: tamis.core.client.RayClient\n  num_cpus: 2\n"
        "stages:\n  - _target_: tamis.stages.text.io.reader.JsonlReader\n    file_paths: data\n"
    )
    found = load_recipe(path)
    assert (found.backend, found.ray_client) == ("ray_data", RayClient(num_cpus=2))


def test_a_plan_says_who_limits_it_and_what_was_measured() -> None:
    few = cluster_figures(8, 10_000.0, 10**13, 300_000)
    assert (few.limited_by, few.seconds, few.n_shards) == ("workers", 10_000.0, 1)
    many = cluster_figures(1000, 3600.0, 10**15, 30_000_000)
    assert (many.limited_by, many.n_shards) == ("driver", 11)
    assert many.seconds == 39_000.0
    said = "\n".join(cluster_lines(many, "rates: from a probe"))
    assert "give a larger --blocksize, or 11 drivers (--shard)" in said
    assert "rates: from a probe" in said
    assert "(measured)" in said


def test_a_curation_is_planned_for_a_cluster_and_for_data_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n' * 50)
    words = ["plan", "web-english", "--json", "--cluster", "8x(64cpu,512GB)"]
    told = CliRunner().invoke(app, [*words, "--dataset-bytes", "8TB"])
    assert told.exit_code == 0, told.output
    made = json.loads(told.stdout)
    assert (made["nodes"], made["n_documents"]) == (8, 2_000_000_000)
    one = CliRunner().invoke(app, [*words[:3], "--machine", "64cores,512GB", "--dataset-bytes", "8TB"])
    slower = sum(c["seconds"] for c in json.loads(one.stdout)["costs"])
    assert 7.9 < slower / sum(c["seconds"] for c in made["costs"]) < 8.1
    there = CliRunner().invoke(app, [*words, "--set", f"input={tmp_path}", "--set", f"output={tmp_path}/out"])
    assert json.loads(there.stdout)["n_documents"] == 50


@pytest.mark.parametrize(("installed", "backend"), [(True, "ray"), (False, "local")])
def test_a_cluster_that_a_recipe_describes_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool, backend: str
) -> None:
    stages = "stages:\n  - _target_: tamis.stages.text.io.reader.JsonlReader\n    file_paths: data\n"
    client = "ray_client:\n  _target_: nemo_curator.core.client.RayClient\n  num_cpus: null\n  num_gpus: 4\n"
    monkeypatch.setattr("tamis.recipe.load.find_spec", lambda _: object() if installed else None)
    for text, expected in (
        (client + stages, backend),
        (stages, "local"),
        ("backend: local\n" + client + stages, "local"),
    ):
        (tmp_path / "r.yaml").write_text("name: x\n" + text)
        assert load_recipe(tmp_path / "r.yaml").backend == expected
