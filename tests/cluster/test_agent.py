"""The hub, an agent and the workers between them, without Ray: the agent is started as an actor would start it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tamis import LocalExecutor, Pipeline, Resources
from tamis.backends.cluster import remote_workers
from tamis.backends.cluster.agent import describe_node
from tamis.backends.cluster.agent_spec import AgentSpec
from tamis.backends.cluster.hub import Hub, prove
from tamis.backends.cluster.remote_workers import RemoteJob, RemoteWorkers
from tamis.backends.ray_cluster import leases
from tamis.engine.worker.config import WorkerConfig
from tamis.errors import BudgetError, PipelineError, UsageError, WorkerError
from tamis.observe.charts.tables import nodes_table
from tamis.observe.series import open_series
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tests.support.here_agents import BUDGET, HereExecutor, HereSession
from tests.support.run_dirs import run_dir_path


@pytest.fixture
def session() -> Iterator[HereSession]:
    made = HereSession(2)
    yield made
    made.close()


def write(folder: Path) -> None:
    folder.mkdir()
    for i in range(4):
        lines = [json.dumps({"id": f"{i}-{n}", "text": "word " * (n % 100)}) + "\n" for n in range(200)]
        (folder / f"{i}.jsonl").write_text("".join(lines))


def pipeline(source: Path, output: Path, stage: Any = None) -> Pipeline:
    stage = stage or ScoreFilter(WordCountFilter(min_words=50))
    return Pipeline("x", stages=[JsonlReader(str(source), files_per_partition=1), stage, JsonlWriter(str(output))])


def content(output: Path) -> str:
    return str(json.loads((run_dir_path(output) / "manifest.json").read_text())["content_hash"])


def test_two_agents_do_what_one_machine_does_and_serve_the_next_run_too(tmp_path: Path, session: HereSession) -> None:
    write(tmp_path / "in")
    pipeline(tmp_path / "in", tmp_path / "local").execute(LocalExecutor(), memory=BUDGET)
    executor = HereExecutor(session)
    first = pipeline(tmp_path / "in", tmp_path / "first").execute(executor)
    assert content(tmp_path / "first") == content(tmp_path / "local")
    assert 0 < first.peak_bytes <= BUDGET
    with open_series(run_dir_path(tmp_path / "first")) as series:
        nodes = series.nodes()
    assert sorted(n.name for n in nodes) == ["node 0", "node 1"]
    assert sum(n.n_units for n in nodes) >= 4
    assert "node 0" in nodes_table(nodes)
    assert "node 1" in (run_dir_path(tmp_path / "first") / "report.html").read_text()
    pids = [agent.pid for agent in session.agents]
    pipeline(tmp_path / "in", tmp_path / "second").execute(executor)
    assert content(tmp_path / "second") == content(tmp_path / "local")
    assert [agent.pid for agent in session.agents if agent.wait(0) is None] == pids
    assert not list((run_dir_path(tmp_path / "second")).glob(".seen*"))


def test_an_agent_that_goes_is_replaced_and_one_that_comes_takes_part(tmp_path: Path, session: HereSession) -> None:
    write(tmp_path / "in")
    pipeline(tmp_path / "in", tmp_path / "local").execute(LocalExecutor(), memory=BUDGET)
    session.n_expected = 1
    executor = HereExecutor(session)

    over = threading.Event()

    def kill() -> None:
        while not list((tmp_path / "out").glob("*.jsonl")):
            if over.wait(0.01):  # the run failed before it wrote anything: nobody waits for this thread then
                return
        session.agents[0].end()
        session.add_agent("another")

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        pipeline(tmp_path / "in", tmp_path / "out", _Slow()).execute(executor)
    finally:
        over.set()
        killer.join(timeout=30)
    with open_series(run_dir_path(tmp_path / "out")) as series:
        texts = " ".join(str(e) for e in series.events(100))
    assert "is gone" in texts
    assert "node another has joined" in texts
    written = [line for path in sorted((tmp_path / "out").glob("*.jsonl")) for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in written) == sorted(
        f"{i}-{n}" for i in range(4) for n in range(200)
    )


class _Slow(ScoreFilter):
    def __init__(self) -> None:
        super().__init__(WordCountFilter(min_words=0))

    def process(self, batch: Any) -> Any:
        time.sleep(0.5)
        return super().process(batch)


def test_the_memory_that_ray_declares_for_a_node_bounds_its_budget(tmp_path: Path) -> None:
    write(tmp_path / "in")
    session = HereSession(1, declared_bytes=BUDGET // 2)
    try:
        result = pipeline(tmp_path / "in", tmp_path / "out").execute(HereExecutor(session))
    finally:
        session.close()
    assert result.status == "finished"
    with open_series(run_dir_path(tmp_path / "out")) as series:
        assert {row.budget_bytes for row in series.nodes()} == {BUDGET // 2}
    spec = AgentSpec("127.0.0.1", 1, "", n_cpus=1, name="a", declared_bytes=10**8)
    assert describe_node(spec).limit_bytes == describe_node(spec).default_bytes == 10**8
    unlimited = describe_node(replace(spec, declared_bytes=1 << 60))
    assert unlimited.limit_bytes == describe_node(replace(spec, declared_bytes=0)).limit_bytes > 10**8


def test_a_run_is_refused_where_every_node_has_too_little_memory(tmp_path: Path) -> None:
    write(tmp_path / "in")
    session = HereSession(2, declared_bytes=30_000_000)
    try:
        with pytest.raises(BudgetError, match=r"node . cannot take part: .*smallest.*declared to the cluster") as error:
            pipeline(tmp_path / "in", tmp_path / "out").execute(HereExecutor(session))
    finally:
        session.close()
    assert error.value.smallest_bytes > 30_000_000


def test_a_stage_that_needs_a_gpu_which_no_node_has_is_refused_at_once(tmp_path: Path, session: HereSession) -> None:
    write(tmp_path / "in")
    session.gpus = [0.0, 0.0]
    stage = ScoreFilter(WordCountFilter(min_words=50)).with_(resources=Resources(gpus=1.0))
    with pytest.raises(PipelineError, match="asks for 1 GPU, the nodes of this cluster offer 0 at most"):
        pipeline(tmp_path / "in", tmp_path / "out", stage).execute(HereExecutor(session))
    session.gpus = [0.0, 2.0]
    made = RemoteWorkers(
        session,
        RemoteJob(b"", [], {"a": 2.0, "b": 0.5, "c": 0.0}),
        WorkerConfig("", "", 0),
        str(tmp_path / "log"),
        False,
        10**9,
    )
    made._refuse_missing_gpus(session.gpus)
    made._selector.close()
    made._waker.close()


def test_a_node_that_does_not_see_the_files_says_so(tmp_path: Path, session: HereSession, monkeypatch: Any) -> None:
    write(tmp_path / "in")
    session.n_expected = 1
    monkeypatch.setattr(RemoteWorkers, "_write_marks", lambda self: self._visible.append(str(tmp_path / "nowhere")))
    monkeypatch.setenv("TAMIS_SEEN_S", "0.2")
    with pytest.raises(
        UsageError, match=r"does not see .*nowhere: output, scratch and inputs must be stored where all nodes see them"
    ):
        pipeline(tmp_path / "in", tmp_path / "out").execute(HereExecutor(session))


@pytest.mark.parametrize("token", ["right", "wrong"])
def test_only_who_knows_the_token_gets_in(token: str) -> None:
    ours, theirs = socket.socketpair()
    found: list[bool] = []
    driver = threading.Thread(target=lambda: found.append(prove(ours, "right", "driver", "agent")), daemon=True)
    driver.start()
    assert prove(theirs, token, "agent", "driver") is (token == "right")
    theirs.close()
    driver.join(timeout=30)
    ours.close()
    assert found == [token == "right"]


def test_a_hub_closes_the_door_to_strangers() -> None:
    hub = Hub("127.0.0.1")
    with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as stranger:
        stranger.sendall(os.urandom(64))
        stranger.settimeout(5)
        while stranger.recv(4096):
            pass
    assert hub.arrivals.empty()
    hub.close()


def test_a_hub_bounds_the_callers_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.backends.cluster.hub.MAX_GREETINGS", 3)
    hub = Hub("127.0.0.1")
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(socket.create_connection(("127.0.0.1", hub.port), timeout=10)) for _ in range(5)]
        for caller in callers[:2]:  # turned away after the challenge; the others are still waited for
            while caller.recv(4096):
                pass
        assert prove(callers[4], hub.token, "agent", "driver")
    hub.close()


def test_workers_that_are_closed_are_not_woken_by_writing_to_whatever_has_its_number_now(tmp_path: Path) -> None:
    """Threads of the hub may call late."""
    config = WorkerConfig(str(tmp_path), str(tmp_path), 1 << 20)
    workers = RemoteWorkers(HereSession(1), RemoteJob(b""), config, str(tmp_path / "log"), False, 10**9)
    workers.close()
    read, write = os.pipe()  # the lowest numbers that are free: those of the workers
    try:
        os.set_blocking(read, False)
        workers.wake()
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
    finally:
        os.close(read)
        os.close(write)


def poll_often(made: RemoteWorkers, told: list[Any]) -> None:
    for _ in range(100):
        told += made.poll(0.02)


def test_waiting_for_a_node_prints_after_seconds_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(remote_workers, "REPORT_S", (0.0, 0.2))
    monkeypatch.setattr(remote_workers, "ALONE_S", 0.4)
    config = WorkerConfig(str(tmp_path), str(tmp_path), 1 << 20)
    made = RemoteWorkers(HereSession(1), RemoteJob(b""), config, str(tmp_path / "log"), False, 10**9)
    told: list[Any] = []
    with pytest.raises(WorkerError, match=r"no node for 0 s.*run the same command again"):
        poll_often(made, told)
    made.close()
    assert [type(event).__name__ for event in told] == ["Incident", "Incident"]
    assert "the run ends after 0 s" in told[0].text
    assert "look at the test" in caplog.text


def test_an_agent_that_is_killed_between_two_leases_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would ask for it otherwise: the node would be without workers for ever."""

    class Killed:
        pid, was_ended = 1, False
        status: int | None = None

        def __init__(self, spec: AgentSpec) -> None: ...
        def wait(self, seconds: float) -> int | None:
            time.sleep(0.01)
            return self.status

        def end(self) -> None: ...

    monkeypatch.setattr(leases, "start_agent", Killed)
    for status, lost in ((-9, True), (0, False)):
        noticed = threading.Event()
        holder = leases.LeaseHolder(AgentSpec("", 0, ""), on_loss=noticed.set)
        assert not noticed.wait(0.1)
        holder._agent.status = status
        assert noticed.wait(5.0 if lost else 0.2) is lost
