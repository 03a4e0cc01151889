"""A real S3 server on loopback in a process of its own, and a proxy that injects network faults.

Faults: refused, slow, cut and unanswered requests. The server lives as long as the test session and holds small data.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SERVE = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Timer(float(sys.argv[1]), lambda: __import__("os")._exit(3)).start()
sys.stdin.read()
__import__("os")._exit(0)
"""
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test-access-key-id",
    "AWS_SECRET_ACCESS_KEY": "not-so-secret-test-key-1234",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class S3Server:
    """`with S3Server() as server:` its address is `server.url`. Ends with this process, whatever happens to it."""

    def __init__(self, most_s: float = 1200.0) -> None:
        self._most_s = most_s

    def __enter__(self) -> S3Server:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(self._most_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class FaultyProxy:
    """A proxy that passes requests on to a server, with faults.

    `fault(method, path, n)` says what happens to request n: "" (nothing) or one of

    403 500 503   answered so, not passed on    drop   the connection is closed, not passed on
    lost      passed on, but not answered       cut    answered with half of the body
    slow      passed on and answered, a little later    flip    answered with one byte changed in the middle of the body
    """

    def __init__(self, port: int) -> None:
        self.fault: Callable[[str, str, int], str] = lambda method, path, n: ""
        self.requests: list[tuple[str, str, str]] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with proxy._lock:
                    what = proxy.fault(self.command, self.path, len(proxy.requests))
                    proxy.requests.append((self.command, self.path, what))
                if what == "drop":
                    return self._close()
                if what in ("403", "500", "503"):
                    code = {"403": "AccessDenied", "500": "InternalError", "503": "SlowDown"}[what]
                    return self._answer(int(what), {}, f"<Error><Code>{code}</Code></Error>".encode())
                if what == "slow":
                    time.sleep(0.1)
                server = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                try:
                    server.request(self.command, self.path, body, dict(self.headers))
                    answer = server.getresponse()
                    data = answer.read()
                finally:
                    server.close()
                if what == "lost":
                    return self._close()
                headers = dict(answer.getheaders())
                if what == "flip" and data:
                    middle = len(data) // 2
                    data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
                self._answer(answer.status, headers, data[: len(data) // 2] if what == "cut" else data, len(data))
                if what == "cut":
                    self._close()
                return None

            def _answer(self, status: int, headers: dict[str, str], data: bytes, length: int | None = None) -> None:
                self.send_response_only(status)
                is_head = self.command == "HEAD"
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection") or (
                        is_head and name.lower() == "content-length"
                    ):
                        self.send_header(name, value)
                if not (is_head and "Content-Length" in headers):
                    self.send_header("Content-Length", str(len(data) if length is None else length))
                self.end_headers()
                if not is_head:
                    self.wfile.write(data)

            def _close(self) -> None:
                self.close_connection = True

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def n_faults(self) -> int:
        return sum(what != "" for _, _, what in self.requests)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)
