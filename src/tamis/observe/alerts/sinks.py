"""Sinks of alerts: a log file, the terminal, a command, a webhook.

Each delivers one alert now, or says why it could not.

Called by delivery.py, in a thread of its own. A sink that may be tried again later has `retries`; addresses of webhooks
are secrets (knowing one suffices to post there), so messages name their host only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol
from urllib.parse import urlsplit

from tamis import files
from tamis._dataclasses import dataclass
from tamis.terminal import printable

LOG_NAME = "alerts.log"
MAX_LOG_BYTES = 8 << 20


class SinkError(Exception):
    """An alert was not delivered. `again`: a later try may succeed."""

    def __init__(self, message: str, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class AlertSink(Protocol):
    """A destination of alerts."""

    name: str
    retries: int = 0

    @abstractmethod
    def deliver(self, alert: Mapping[str, Any]) -> None:
        """Deliver `alert`, the JSON object of an alert (watch.py). Raises SinkError."""

    def abandon(self) -> None:
        """Abort the current delivery; called from another thread."""
        return

    def addresses(self) -> dict[str, Any]:
        """Return what would let anyone who knows it write to the same destination, and so is never recorded.

        Values are under `secret`, or under names that identify them as secrets (secrets.py).
        """
        return {}


@dataclass
class LogSink(AlertSink):
    """A line per alert in the run directory."""

    path: str
    name: str = "log"

    def deliver(self, alert: Mapping[str, Any]) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(float(alert["at"])))
        line = f"{when} {str(alert['level']).upper():8} {alert['rule']}: {alert['text']}"
        try:
            # A planted link could point at any file of the user's.
            with open(files.open_to_append(self.path), "ab") as file:
                if file.tell() < MAX_LOG_BYTES:
                    file.write(printable(line).encode("utf-8", "backslashreplace") + b"\n")
        except OSError as exc:
            raise SinkError(f"{self.path}: {exc.strerror}") from None


@dataclass
class TerminalSink(AlertSink):
    show: Callable[[str], None]
    name: str = "terminal"

    def deliver(self, alert: Mapping[str, Any]) -> None:
        word = {"resolved": "resolved", "critical": "ALERT (critical)"}.get(str(alert["level"]), "alert")
        self.show(printable(f"{word} {alert['rule']}: {str(alert['text']).removeprefix('resolved ')}"))


@dataclass
class CommandSink(AlertSink):
    """A program with the alert as JSON on its standard input.

    No shell; ended with all its children after `timeout_s`.
    """

    name: str
    command: tuple[str, ...]
    timeout_s: float = 10.0
    _running: subprocess.Popen[bytes] | None = None

    def addresses(self) -> dict[str, Any]:
        return {"secret": [word for word in self.command if "://" in word]}

    def deliver(self, alert: Mapping[str, Any]) -> None:
        program = self.command[0]
        with tempfile.TemporaryFile() as stderr, tempfile.TemporaryFile() as stdin:
            stdin.write(json.dumps(alert).encode() + b"\n")  # a pipe would have to be fed while waiting
            stdin.seek(0)
            try:
                self._running = process = subprocess.Popen(
                    self.command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
                )
                code = process.wait(self.timeout_s)
            except OSError as exc:
                raise SinkError(f"{program} cannot be started: {exc.strerror}") from None
            except subprocess.TimeoutExpired:
                self.abandon()
                raise SinkError(f"{program} took longer than {self.timeout_s:g} s and was ended") from None
            finally:
                self._running = None
            if code:
                stderr.seek(0)
                words = printable(" ".join(stderr.read(300).decode(errors="replace").split()))
                raise SinkError(f"{program} ended with {code}" + (f": {words}" if words else ""))

    def abandon(self) -> None:
        if (process := self._running) is not None:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # the leader of a session of its own
            except (ProcessLookupError, PermissionError):
                process.kill()
            process.wait()


@dataclass
class WebhookSink(AlertSink):
    """A JSON POST. Network errors, 429 and 5xx are tried again; redirects are refused: they may lead anywhere."""

    name: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_s: float = 10.0
    retries: int = 4

    def addresses(self) -> dict[str, Any]:
        return {"secret": self.url, "headers": dict(self.headers)}

    def deliver(self, alert: Mapping[str, Any]) -> None:
        # 9 MB of modules: only runs that have a webhook, and an alert for it, pay for them.
        import http.client
        from urllib import error, request

        class Refuse(request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any, **__: Any) -> None:
                return None

        host = urlsplit(self.url).hostname
        headers = {"Content-Type": "application/json", "User-Agent": "tamis", **dict(self.headers)}
        post = request.Request(self.url, json.dumps(alert).encode(), headers, method="POST")
        try:
            with request.build_opener(Refuse).open(post, timeout=self.timeout_s) as answer:
                answer.read(1000)
        except error.HTTPError as exc:
            exc.close()
            moved = "; it is answered with a redirect: give the final address" if exc.code // 100 == 3 else ""
            raise SinkError(f"{host} answered {exc.code}{moved}", again=exc.code == 429 or exc.code >= 500) from None
        except (OSError, http.client.HTTPException, ValueError) as exc:
            reason = printable(str(getattr(exc, "reason", exc)))[:200]
            raise SinkError(f"{host}: {reason}", again=not isinstance(exc, ValueError)) from None
