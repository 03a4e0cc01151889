"""Sinks and their delivery: a real server on the loopback, real processes."""

from __future__ import annotations

import http.server
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tamis import secrets
from tamis.observe.alerts.delivery import Delivery
from tamis.observe.alerts.sinks import AlertSink, CommandSink, LogSink, SinkError, TerminalSink, WebhookSink

ALERT: dict[str, Any] = {"rule": "memory", "level": "warning", "text": "memory at 91 %", "at": 0.0}


@dataclass
class Server:
    """Answers with these codes, one after the other, then with 204; keeps what it was sent."""

    codes: list[int]
    got: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    told = Server([])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.got.append(({k.lower(): v for k, v in self.headers.items()}, json.loads(body)))
            code = told.codes.pop(0) if told.codes else 204
            self.send_response(code)
            if code // 100 == 3:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        told.url = f"http://127.0.0.1:{httpd.server_address[1]}/hook/secret"
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield told
        httpd.shutdown()
        thread.join()


def delivered(
    sink: AlertSink, *alerts: dict[str, Any], timeout_s: float = 20.0, **more: Any
) -> tuple[Delivery, list[str]]:
    complaints: list[str] = []
    delivery = Delivery([sink], complaints.append, backoff=lambda n: 0.01 * n, **more)
    for alert in alerts:
        delivery.send(alert, [sink.name])
    delivery.close(timeout_s)
    return delivery, complaints


def test_a_webhook_that_fails_twice_is_tried_until_it_accepts(server: Server) -> None:
    server.codes = [503, 429]
    delivery, complaints = delivered(WebhookSink("hook", server.url, (("X-Token", "t"),)), ALERT)
    assert (delivery.n_delivered, delivery.failures, complaints) == ({"hook": 1}, {}, [])
    assert [body for _, body in server.got] == [ALERT] * 3
    headers = server.got[0][0]
    assert (headers["content-type"], headers["x-token"]) == ("application/json", "t")


def test_a_retry_does_not_hold_up_what_comes_after(server: Server) -> None:
    server.codes = [500]
    delivered(WebhookSink("hook", server.url), {**ALERT, "n": 1}, {**ALERT, "n": 2})
    # The second is sent while the first waits for its next try, or, at the latest, right after it.
    assert sorted(body["n"] for _, body in server.got) == [1, 1, 2]


@pytest.mark.parametrize(
    ("codes", "n", "why"), [([500] * 9, 3, "answered 500, after 3 tries"), ([404] * 9, 1, "answered 404")]
)
def test_a_webhook_that_refuses(codes: list[int], n: int, why: str, server: Server) -> None:
    server.codes = codes
    delivery, complaints = delivered(WebhookSink("hook", server.url, retries=2), ALERT)
    assert len(server.got) == n
    assert delivery.failures == {"hook": 1}
    assert complaints == [f"an alert did not reach hook: 127.0.0.1 {why} (further failures are only counted)"]
    assert "secret" not in complaints[0]


def test_redirects_are_refused(server: Server) -> None:
    server.codes = [302]
    with pytest.raises(SinkError, match="answered 302; it is answered with a redirect: give the final address"):
        WebhookSink("hook", server.url).deliver(ALERT)
    assert len(server.got) == 1


def test_no_server_listens_or_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(SinkError, match=r"127\.0\.0\.1: .*refused") as refused:
            WebhookSink("hook", url).deliver(ALERT)
        silent.listen()
        with pytest.raises(SinkError, match=r"127\.0\.0\.1: .*timed out") as waited:
            WebhookSink("hook", url, timeout_s=0.2).deliver(ALERT)
    assert (refused.value.again, waited.value.again) == (True, True)


def test_an_answer_that_is_not_http() -> None:
    with socket.socket() as odd:
        odd.bind(("127.0.0.1", 0))
        odd.listen()

        def answer() -> None:
            peer, _ = odd.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"\x00\xff no such thing\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SinkError):
            WebhookSink("hook", f"http://127.0.0.1:{odd.getsockname()[1]}/").deliver(ALERT)
        thread.join()


def python(code: str, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *args)


def test_a_command_gets_the_alert_on_its_input_and_no_shell(tmp_path: Path) -> None:
    out = tmp_path / "$(touch x); *"
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    CommandSink("c", python(code, str(out))).deliver(ALERT)
    assert json.loads(out.read_text()) == ALERT
    assert os.listdir(tmp_path) == [out.name]


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r} + '.part', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(pids)!r} + '.part', {str(pids)!r})\n"
        "time.sleep(600)"
    )
    delivery, complaints = delivered(CommandSink("c", python(code), timeout_s=3.0), ALERT)
    assert delivery.failures == {"c": 1}
    assert "took longer than 3 s and was ended" in complaints[0]
    assert [is_running(int(pid)) for pid in pids.read_text().split()] == [False, False]


def is_running(pid: int) -> bool:
    """Of a process that was killed; whoever inherited it may take a moment to notice."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.02)
    return True


def test_a_command_under_way_ends_with_the_run(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    code = (
        f"import os, time; open({str(started)!r} + '.part', 'w').write(str(os.getpid())); os.rename({str(started)!r} "
        f"+ '.part', {str(started)!r}); time.sleep(600)"
    )
    delivery = Delivery([CommandSink("c", python(code), timeout_s=60.0)], lambda _: None)
    delivery.send(ALERT, ["c"])
    while not started.exists():
        time.sleep(0.01)
    delivery.close(0.1)
    assert not is_running(int(started.read_text()))


def test_commands_that_fail() -> None:
    with pytest.raises(SinkError, match="ended with 3: no luck"):
        CommandSink("c", python("import sys; sys.stderr.write('no \\n luck'); sys.exit(3)")).deliver(ALERT)
    with pytest.raises(SinkError, match="no/such/program cannot be started: No such file"):
        CommandSink("c", ("no/such/program",)).deliver(ALERT)


@dataclass
class Gate:
    """A sink that waits until it is opened."""

    name: str = "gate"
    retries: int = 0
    open: threading.Event = field(default_factory=threading.Event)
    got: list[Any] = field(default_factory=list)

    def deliver(self, alert: Any) -> None:
        self.open.wait(20)
        self.got.append(alert["n"])

    def abandon(self) -> None:
        self.open.set()


def test_a_full_queue_never_blocks_and_is_reported_once() -> None:
    gate, complaints = Gate(), []  # type: ignore[var-annotated]
    delivery = Delivery([gate], complaints.append, max_waiting=3)
    for n in range(10):
        delivery.send({"n": n}, ["gate", "unknown"])
    gate.open.set()
    delivery.close(20)
    # One may have been taken out of the queue before it was full.
    assert gate.got in ([0, 1, 2], [0, 1, 2, 3])
    assert delivery.failures == {"gate": 10 - len(gate.got)}
    assert complaints == [
        "an alert did not reach gate: more than 3 alerts wait already (further failures are only counted)"
    ]


def test_no_sink_is_flooded() -> None:
    gate = Gate()
    gate.open.set()
    delivery, complaints = delivered(gate, *({"n": n} for n in range(9)), max_per_minute=4)
    assert (gate.got, delivery.failures) == ([0, 1, 2, 3], {"gate": 5})
    assert complaints == [
        "an alert did not reach gate: more than 4 alerts within a minute (further failures are only counted)"
    ]


def test_the_end_does_not_wait_for_ever() -> None:
    gate = Gate()
    delivery, complaints = delivered(gate, {"n": 1}, {"n": 2}, timeout_s=0.05)
    assert complaints in (
        [],
        ["an alert did not reach gate: the run ended before it was sent (further failures are only counted)"],
    )
    delivery.send({"n": 3}, ["gate"])  # after the end nothing is taken any more
    assert 3 not in gate.got


def test_retries_that_come_too_late_are_given_up(server: Server) -> None:
    server.codes = [500]
    complaints: list[str] = []
    delivery = Delivery([WebhookSink("hook", server.url)], complaints.append, backoff=lambda _: 60.0)
    delivery.send(ALERT, ["hook"])
    delivery.close(5.0)
    assert (delivery.failures, len(server.got)) == ({"hook": 1}, 1)
    assert complaints == [
        "an alert did not reach hook: the run ended before the next try (further failures are only counted)"
    ]


class Broken:
    name, retries = "broken", 0

    def deliver(self, alert: Any) -> None:
        raise RuntimeError("a mistake")

    def abandon(self) -> None:
        pass


def test_a_mistake_in_a_sink_does_not_end_the_others(tmp_path: Path) -> None:
    log = LogSink(str(tmp_path / "alerts.log"))
    delivery = Delivery([Broken(), log], lambda _: None)
    for _ in range(2):
        delivery.send(ALERT, ["broken", "log"])
    delivery.close(20)
    assert (delivery.failures, delivery.n_delivered) == ({"broken": 2}, {"broken": 0, "log": 2})


def test_the_log_is_one_printable_line_for_each_alert(tmp_path: Path) -> None:
    log = LogSink(str(tmp_path / "alerts.log"))
    log.deliver({**ALERT, "text": "stage a\nb\x1b[2J\ud800 é"})
    log.deliver({**ALERT, "level": "resolved"})
    assert (tmp_path / "alerts.log").read_text() == (
        "1970-01-01T00:00:00Z WARNING  memory: stage a\\nb\\x1b[2J\\ud800 é\n1970-01-01T00:00:00Z RESOLVED memory: "
        "memory at 91 %\n"
    )


def test_the_log_follows_no_link_and_needs_its_folder(tmp_path: Path) -> None:
    (tmp_path / "alerts.log").symlink_to(tmp_path / "other")
    for path in ("alerts.log", "gone/alerts.log"):
        with pytest.raises(SinkError, match=path):
            LogSink(str(tmp_path / path)).deliver(ALERT)
    assert not (tmp_path / "other").exists()


def test_the_terminal() -> None:
    shown: list[str] = []
    for level in ("warning", "critical", "resolved"):
        TerminalSink(shown.append).deliver({**ALERT, "level": level, "text": "x\r\x07"})
    assert shown == [f"{word} memory: x\\r\\x07" for word in ("alert", "ALERT (critical)", "resolved")]


def test_what_may_not_be_written_down_is_the_address_and_what_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_values", set())
    headers = (("X-Room", "corpus"), ("Authorization", "Bearer abc"), ("X-Api-Key", "012345"))
    secrets.learn(WebhookSink("chat", "https://a/hook", headers).addresses())
    secrets.learn(CommandSink("page", ("/bin/page", "https://b/hook")).addresses())
    assert secrets._values == {"https://a/hook", "Bearer abc", "012345", "https://b/hook"}
