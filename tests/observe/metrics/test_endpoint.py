"""The address that is scraped: real sockets, good and bad clients."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tamis.errors import UsageError
from tamis.observe.metrics import endpoint as module
from tamis.observe.metrics.endpoint import MetricsEndpoint


@pytest.fixture
def served() -> Iterator[MetricsEndpoint]:
    made = MetricsEndpoint(lambda: "tamis_up 1\n").start()
    yield made
    made.close()


def ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(request)
        found = b""
        while more := client.recv(4096):
            found += more
    return found


def get(port: int, path: str = "/metrics", host: str = "localhost") -> bytes:
    return ask(port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def status(answer: bytes) -> bytes:
    return answer.split(b"\r\n")[0]


def test_the_whole_answer(served: MetricsEndpoint) -> None:
    assert get(served.port) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: 11\r\n"
        b"Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\ntamis_up 1\n"
    )
    assert served.url == f"http://127.0.0.1:{served.port}/metrics"


def test_head_has_no_body(served: MetricsEndpoint) -> None:
    answer = ask(served.port, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"Content-Length: 11\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /metrics?a=b HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"GET /x HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET /metrics\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"\xff\xfe\x00\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /metrics SPDY/3\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
    ],
)
def test_other_requests(served: MetricsEndpoint, request_: bytes, expected: bytes) -> None:
    assert status(ask(served.port, request_)) == expected


def test_names_of_elsewhere_are_refused_on_this_machine(served: MetricsEndpoint) -> None:
    for host in ("localhost", "127.0.0.1:80", "[::1]:80"):
        assert status(get(served.port, host=host)) == b"HTTP/1.1 200 OK"
    for host in ("evil.example", "localhost.evil.example", "192.168.1.1"):
        assert status(get(served.port, host=host)) == b"HTTP/1.1 403 Forbidden"


def test_others_may_ask_where_they_were_invited() -> None:
    made = MetricsEndpoint(lambda: "x 1\n", "0.0.0.0").start()
    assert status(get(made.port, host="node7.cluster")) == b"HTTP/1.1 200 OK"
    assert made.url == f"http://{socket.gethostname()}:{made.port}/metrics"
    made.close()


def test_a_request_without_end_is_cut(served: MetricsEndpoint) -> None:
    head = b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (module.MAX_REQUEST_BYTES - 26)
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        client.sendall(head)
        assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_a_silent_client_is_left_and_others_are_served(
    served: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REQUEST_S", 0.2)
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=10) as silent,
        socket.create_connection(("127.0.0.1", served.port), timeout=10) as slow,
    ):
        slow.sendall(b"GET /met")
        assert status(get(served.port)) == b"HTTP/1.1 200 OK"
        assert silent.recv(100).startswith(b"HTTP/1.1 400")


def test_half_open_connections_block_no_client(served: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REQUEST_S", 600.0)  # none of them is given up
    with contextlib.ExitStack() as stack:
        for number in range(60):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=10))
            client.sendall((b"", b"GET /metrics HT", b"GET /metrics HTTP/1.1\r\nX: y\r\n")[number % 3])
            if number % 10 == 0:
                assert status(get(served.port)) == b"HTTP/1.1 200 OK"
        assert status(get(served.port)) == b"HTTP/1.1 200 OK"
        client.sendall(b"\r\n" if number % 3 == 2 else b"\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_clients_that_do_not_read_block_no_client() -> None:
    made = MetricsEndpoint(lambda: "x" * 8_000_000 + "\n").start()  # more than the buffers of a connection hold
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", made.port), timeout=10))
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert len(get(made.port)) > 8_000_000
    made.close()


def test_the_oldest_half_open_connection_makes_room(served: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REQUEST_S", 600.0)
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 4)
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=10)) for _ in range(9)
        ]
        assert [client.recv(100) for client in clients[:5]] == [b""] * 5
        assert status(get(served.port)) == b"HTTP/1.1 200 OK"
        clients[-1].sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert clients[-1].recv(100).startswith(b"HTTP/1.1 200")


def test_a_client_that_goes_away_does_no_harm(served: MetricsEndpoint) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset instead of an end
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert status(get(served.port)) == b"HTTP/1.1 200 OK"


def test_who_asks_often_gets_the_last_answer_again() -> None:
    looks: list[int] = []

    def look() -> str:
        looks.append(1)
        return f"x {len(looks)}\n"

    made = MetricsEndpoint(look).start()
    answers = {get(made.port)[-4:] for _ in range(5)}
    made.close()
    assert answers == {b"x 1\n"}
    assert len(looks) == 1


def test_what_fails_is_a_sentence_and_the_next_one_is_answered() -> None:
    def look() -> str:
        raise ValueError("no run")

    made = MetricsEndpoint(look).start()
    for _ in range(2):
        answer = get(made.port)
        assert status(answer) == b"HTTP/1.1 500 Internal Server Error"
        assert answer.endswith(b"ValueError: no run\n")
    made.close()


def test_a_port_that_is_taken_says_what_to_do(served: MetricsEndpoint) -> None:
    with pytest.raises(UsageError, match=rf"no metrics at 127.0.0.1 port {served.port}: .*; give another port, or 0"):
        MetricsEndpoint(lambda: "", port=served.port)
    with pytest.raises(UsageError, match=r"no metrics at 203\.0\.113\.1 port 0: "):  # an address of nobody
        MetricsEndpoint(lambda: "", host="203.0.113.1")


def test_closing_ends_its_thread() -> None:
    made = MetricsEndpoint(lambda: "").start()
    assert any(t.name == "tamis-metrics" for t in threading.enumerate())
    made.close()
    deadline = time.monotonic() + 5
    while any(t.name == "tamis-metrics" for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", made.port), timeout=1)
