"""Messages between supervisor, forking server and workers: JSON with a length in front, over a Unix socket.

Never pickle: a worker runs the user's code, and what it sends is data.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from typing import Any

_HEAD = struct.Struct("<I")
MAX_MESSAGE_BYTES = 256 << 20
_MAX_FDS = 4


class Channel:
    """One end of a socket pair. `poll` returns the messages that are complete, without blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()
        self.fds: list[int] = []  # descriptors that came with messages which were waited for
        self.closed = False

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: dict[str, Any]) -> bool:
        """False when the other side is gone (its death is learned elsewhere)."""
        data = json.dumps(message, separators=(",", ":")).encode()
        try:
            self.sock.sendall(_HEAD.pack(len(data)) + data)
        except (BrokenPipeError, ConnectionResetError, OSError):
            self.closed = True
            return False
        return True

    def wait(self, seconds: float) -> bool:
        """Whether something has arrived, waiting for it so long."""
        return bool(self._buffer) or bool(select.select([self.sock], [], [], seconds)[0])

    def receive(self) -> dict[str, Any] | None:
        """Block for the next message; None when the other side is gone."""
        while True:
            message = self._next()
            if message is not None:
                return message
            try:
                data, fds, _, _ = socket.recv_fds(self.sock, 1 << 16, _MAX_FDS)
                self.fds += fds
            except (ConnectionResetError, OSError):
                data = b""
            if not data:
                self.closed = True
                return None
            self._buffer += data

    def poll(self) -> list[dict[str, Any]]:
        """Complete messages that have arrived. Sets `closed` at the end of the stream."""
        try:
            while data := self.sock.recv(1 << 16, socket.MSG_DONTWAIT):
                self._buffer += data
            self.closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        return messages

    def _next(self) -> dict[str, Any] | None:
        if len(self._buffer) < _HEAD.size:
            return None
        (size,) = _HEAD.unpack_from(self._buffer)
        if size > MAX_MESSAGE_BYTES:
            self.closed = True
            self._buffer.clear()
            return None
        if len(self._buffer) < _HEAD.size + size:
            return None
        message: dict[str, Any] = json.loads(self._buffer[_HEAD.size : _HEAD.size + size])
        del self._buffer[: _HEAD.size + size]
        return message

    def close(self) -> None:
        self.closed = True
        self.sock.close()
