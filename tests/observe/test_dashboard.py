"""The dashboard's server, a real process on a real port: what it answers, to whom, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tamis.observe.dashboard.server import HEADER_S, Server
from tamis.observe.dashboard.watching import Watcher
from tamis.observe.serving import listen
from tests.support.made_run import make_run
from tests.support.run_dirs import run_dir_path

SRC = Path(__file__).parents[2] / "src"
TOKEN = "an-example-token-of-32-characters"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Dashboard:
    process: subprocess.Popen[str]
    line: str
    port: int

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def raw(self, sent: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            found = b""
            while data := connection.recv(65536):
                found += data
            return found


@contextlib.contextmanager
def running(run_dir: Path, *options: str, token: str = "", **env: str) -> Iterator[Dashboard]:
    command = [sys.executable, "-m", "tamis.observe.dashboard", str(run_dir), "--port", "0", *options]
    env = {**os.environ, "PYTHONPATH": str(SRC), "TAMIS_DASHBOARD_TOKEN": token, **env}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            yield Dashboard(process, line, int(line.partition("//")[2].partition(":")[2].partition("/")[0]))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    folder = make_run(run_dir_path(tmp_path_factory.mktemp("run")), seconds=30)
    with running(folder) as found:
        yield found


def test_the_page_and_its_parts(shown: Dashboard) -> None:
    assert shown.line == f"dashboard: http://127.0.0.1:{shown.port}/ (Ctrl-C ends it)"
    page = shown.get("/")
    assert page.status == 200
    assert "<title>Tamis</title>" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in page.headers
    kinds = {path: shown.get(path).headers["content-type"] for path in ("/page.js", "/page.css", "/icon.svg")}
    assert list(kinds.values()) == ["text/javascript; charset=utf-8", "text/css; charset=utf-8", "image/svg+xml"]


def test_fragments_and_what_changed(shown: Dashboard) -> None:
    first = json.loads(shown.get("/fragments?range=all&seen=").body)
    assert "Memory" not in first["fragments"]["memory"]
    assert first["fragments"]["memory"].startswith("<figure>")
    assert first["ended"] is False
    again = json.loads(shown.get(f"/fragments?range=all&seen={first['version']}").body)
    assert again["fragments"] == {}


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/../../etc/passwd",
        "/%2e%2e/run.sqlite",
        "/run.sqlite",
        "//etc/passwd",
        "/page.js/",
        "/fragments/x",
        "/static/../page.js",
        "*",
    ],
)
def test_there_is_nothing_else(shown: Dashboard, path: str) -> None:
    answer = shown.get(path)
    assert (answer.status, answer.text) == (404, "there is no such page\n")


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{80}", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_a_name_that_is_not_ours_gets_nothing(shown: Dashboard, host: str) -> None:
    for path in ("/", "/fragments", "/page.js"):
        answer = shown.get(path, Host=host)
        assert answer.status == 403
        assert b"figure" not in answer.body


def test_a_tunnel_may_have_another_port(shown: Dashboard) -> None:
    assert shown.get("/", Host="localhost:9999").status == 200


def test_half_open_connections_block_no_client(shown: Dashboard) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(100):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", shown.port), timeout=20))
            client.sendall((b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n")[number % 3])
            if number % 10 == 0:
                assert shown.get("/").status == 200
        assert json.loads(shown.get("/fragments?wait=1&seen=").body)["fragments"]


def test_a_request_has_a_deadline_however_slowly_it_comes(tmp_path: Path) -> None:
    listening = listen("127.0.0.1", 0)
    with Server("127.0.0.1", listening, Watcher(tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.guard.port
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as slow,
            contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as page,
        ):
            slow.sendall(b"GET / HTTP/1.1\r\nHost: local")
            for ahead_s in (0.0, HEADER_S + 1):  # the connection of a page may be quiet for longer between two requests
                page.request("GET", "/icon.svg")
                assert page.getresponse().read()
                server.connections.end_overdue(time.monotonic() + ahead_s)
            assert slow.recv(100) == b""
            page.request("GET", "/icon.svg")
            assert page.getresponse().read()
        server.shutdown()
        thread.join()


def test_other_methods(shown: Dashboard) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = shown.get("/fragments", method)
        assert answer.status == 501
        assert "content-security-policy" in answer.headers
    assert shown.get("/", "HEAD").body == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\xff\xfe\x00" * 100 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 300 + b"\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_nonsense_is_refused_and_the_server_continues(shown: Dashboard, sent: bytes) -> None:
    found = shown.raw(sent)
    assert not found or found.split()[1][:1] in (b"4", b"5")
    assert shown.get("/").status == 200


def test_odd_queries(shown: Dashboard) -> None:
    for query in ("seen=%00", "range=" + "x" * 1000, "seen=a.b", "seen=" + "9" * 5000, "token=x"):
        assert len(json.loads(shown.get(f"/fragments?{query}").body)["fragments"]) == 24
    assert shown.get("/fragments?" + "&".join(f"a{i}=1" for i in range(20))).status == 400


def test_the_report_comes_without_any_rights(tmp_path: Path) -> None:
    make_run(tmp_path, seconds=2)
    with running(tmp_path) as found:
        assert found.get("/report.html").status == 404
        (tmp_path / "report.html").write_text("<script>alert(1)</script>")
        answer = found.get("/report.html")
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none'")
        assert re.search(r"script-src 'sha256-[^ ';]+';", policy)  # that of reports, and no other
        (tmp_path / "report.html").unlink()
        (tmp_path / "report.html").symlink_to("/etc/passwd")
        assert found.get("/report.html").status == 404


def test_a_token(tmp_path: Path) -> None:
    make_run(tmp_path, seconds=2)
    with running(tmp_path, token=TOKEN) as found:
        assert found.line.endswith(f"/?token={TOKEN} (Ctrl-C ends it)")
        cookie = f"tamis-{found.port}={TOKEN}"
        for path in (
            "/",
            "/fragments",
            "/page.js",
            "/report.html",
            "/?token=",
            "/?token=wrong",
            f"/?token={TOKEN[:-1]}",
        ):
            answer = found.get(path)
            assert (answer.status, answer.body[:19]) == (401, b"a token is needed; ")
        assert found.get("/", Cookie=f"tamis-{found.port}=wrong").status == 401
        entered = found.get(f"/?token={TOKEN}")
        assert entered.status == 200
        assert entered.headers["set-cookie"] == f"{cookie}; Path=/; HttpOnly; SameSite=Strict"
        assert found.get("/fragments", Cookie=f"other=1; {cookie}").status == 200
        assert TOKEN.encode() not in Path(f"/proc/{found.process.pid}/cmdline").read_bytes()


def test_a_run_that_begins_later_and_one_that_is_damaged(tmp_path: Path) -> None:
    with running(run_dir_path(tmp_path / "out")) as found:
        news = json.loads(found.get("/fragments").body)
        assert "Waiting for the first sample" in news["fragments"]["progress"]
        make_run(run_dir_path(tmp_path / "out"), seconds=20)
        news = _newer(found, news["version"], "memory")
        assert news["fragments"]["memory"].startswith("<figure>")
        (run_dir_path(tmp_path / "out") / "run.sqlite").write_bytes(b"no database" * 1000)
        news = _newer(found, news["version"], "notices")
        assert "run.sqlite cannot be read" in news["fragments"]["notices"]


def _newer(found: Dashboard, version: str, wanted: str) -> dict[str, dict[str, str]]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        news: dict[str, dict[str, str]] = json.loads(found.get(f"/fragments?seen={version}").body)
        if wanted in news["fragments"]:
            return news
        time.sleep(0.2)
    raise AssertionError(f"{wanted} did not change")


def test_many_connections_do_not_end_it(tmp_path: Path) -> None:
    make_run(tmp_path, seconds=2)
    with running(tmp_path) as found:
        held = [socket.create_connection(("127.0.0.1", found.port), timeout=20) for _ in range(40)]
        for connection in held:
            connection.close()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if found.get("/").status == 200:
                    return
            time.sleep(0.2)
        raise AssertionError("no answer")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly(tmp_path: Path, how: int) -> None:
    make_run(tmp_path, seconds=2)
    with running(tmp_path) as found:
        assert found.get("/fragments").status == 200
        found.process.send_signal(how)
        assert found.process.wait(30) == 0
        assert found.process.stderr is not None
        assert found.process.stderr.read() == ""


def test_pages_see_the_end(tmp_path: Path) -> None:
    make_run(tmp_path, seconds=2)
    with running(tmp_path) as found:
        first = json.loads(found.get("/fragments").body)
        (tmp_path / "manifest.json").write_text('{"status": "finished", "exit_code": 0}')
        found.process.send_signal(signal.SIGTERM)
        seen, shown, ended = first["version"], dict(first["fragments"]), False
        while not ended:  # what is asked before the signal has arrived is answered as ever
            last = json.loads(found.get(f"/fragments?seen={seen}&wait=1").body)
            seen, ended = last["version"], last["ended"]
            shown |= last["fragments"]
        assert "finished" in shown["head"]
        assert found.process.wait(30) == 0


def test_a_waiting_page_is_answered_when_something_changes_and_at_the_end(tmp_path: Path) -> None:
    make_run(tmp_path, seconds=2)
    with running(tmp_path) as found:
        seen = json.loads(found.get("/fragments").body)["version"]
        answers: list[dict[str, Any]] = []

        def ask() -> None:
            answers.append(json.loads(found.get(f"/fragments?seen={seen}&wait=1").body))

        for news in ("changed", "ended"):
            page = threading.Thread(target=ask)
            page.start()
            page.join(1.5)
            assert page.is_alive()  # nothing has changed
            if news == "changed":
                (tmp_path / "manifest.json").write_text('{"status": "interrupted", "exit_code": 130}')
            else:
                found.process.send_signal(signal.SIGTERM)
            page.join(8)
            assert not page.is_alive()
            seen = answers[-1]["version"]
        assert [a["ended"] for a in answers] == [False, True]
        assert "interrupted" in answers[0]["fragments"]["head"]
        assert found.process.wait(30) == 0


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    make_run(tmp_path, seconds=2)
    code = (
        "import os, subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-m', 'tamis.observe.dashboard', {str(tmp_path)!r}, '--port', '0', "
        "'--parent', str(os.getpid())], stdout=subprocess.PIPE)\n"
        "print(p.pid, p.stdout.readline().decode(), flush=True)\n"
        "os._exit(0)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=True)
    pid, _, url = done.stdout.split()[:3]
    assert url.startswith("http://127.0.0.1:")
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{pid}")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    make_run(tmp_path, seconds=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "tamis.observe.dashboard", str(tmp_path), "--port", str(port)]
        env = {**os.environ, "PYTHONPATH": str(SRC)}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(
            f"error: no dashboard at 127.0.0.1 port {port}: Address already in use; give another --port"
        )


def test_it_is_small(tmp_path: Path) -> None:
    """It counts in the budget of a run: 24 MB are set aside for it, or what it uses, if that is more."""
    make_run(tmp_path, seconds=900, n_workers=8, n_units=2000, n_gpus=2)
    with running(tmp_path) as found:
        for range_ in ("all", "600", "60"):
            assert found.get(f"/fragments?range={range_}").status == 200
        rollup = Path(f"/proc/{found.process.pid}/smaps_rollup").read_text()
        pss_bytes = next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
        assert pss_bytes < 30_000_000
        loaded = Path(f"/proc/{found.process.pid}/maps").read_text()
        assert not any(name in loaded for name in ("numpy", "pyarrow", "llvmlite", "libssl"))
