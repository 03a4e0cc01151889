"""Messages between supervisor, forking server and workers over a Unix socket: wire.py's bytes after their length."""

from __future__ import annotations

import array
import contextlib
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

from tamis.engine.wire import Garbled, Kinds, decode, encode

_HEAD = struct.Struct("<I")
MAX_MESSAGE_BYTES = 256 << 20
_MAX_FDS = 4


class Channel:
    """One end of a socket pair. `hears`: the messages that may come from the other side.

    After anything else the channel is closed, `garbled` says what it was, and what follows is not read.
    """

    def __init__(self, sock: socket.socket, hears: Kinds) -> None:
        self.sock, self.hears = sock, hears
        self._buffer = bytearray()
        self.fds: list[int] = []  # descriptors that came with messages
        self.closed = False
        self.garbled = ""

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Any) -> bool:
        """Send a message; return False if the other side is gone (its death is reported elsewhere)."""
        try:
            self.sock.sendall(framed(message))
        except OSError:
            self.closed = True
            return False
        return True

    def send_with(self, message: Any, fds: Sequence[int]) -> None:
        """Send a message with file descriptors; a closed connection is only noticed by reading."""
        data = framed(message)
        with contextlib.suppress(OSError):
            n_sent = socket.send_fds(self.sock, [data], fds) if fds else 0
            self.sock.sendall(data[n_sent:])

    def wait(self, seconds: float) -> bool:
        """Return True if something has arrived, waiting for it at most `seconds`."""
        return bool(self._buffer) or bool(select.select([self.sock], [], [], seconds)[0])

    def receive(self) -> Any:
        """Block for the next message; None when the other side is gone, or cannot be understood."""
        while not self.garbled:
            message = self._next()
            if message is not None:
                return message
            if not self._wait_for_more():
                break
        self.closed = True
        return None

    def take(self, n_bytes: int) -> bytes:
        """Read `n_bytes` raw bytes that follow a message, waiting for them; fewer if the other side is gone."""
        while len(self._buffer) < n_bytes and self._wait_for_more():
            pass
        data = bytes(self._buffer[:n_bytes])
        del self._buffer[:n_bytes]
        return data

    def poll(self, with_fds: bool = False) -> list[Any]:
        """Complete messages that have arrived.

        Sets `closed` at the end of the stream. Descriptors are taken of those only whom we trust.
        """
        if self.garbled:
            return []
        try:
            while data := self._read(with_fds, socket.MSG_DONTWAIT):
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

    def _wait_for_more(self) -> bool:
        try:
            data = self._read(with_fds=True)
        except OSError:
            return False
        self._buffer += data
        return bool(data)

    def _read(self, with_fds: bool, flags: int = 0) -> bytes:
        if not with_fds:
            return self.sock.recv(1 << 16, flags)
        # Not socket.recv_fds, which waits, whatever its flags say.
        data, ancillary, _, _ = self.sock.recvmsg(1 << 16, socket.CMSG_SPACE(_MAX_FDS * 4), flags)
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.fds += array.array("i", raw[: len(raw) // 4 * 4])
        return data

    def _next(self) -> Any:
        if len(self._buffer) < _HEAD.size:
            return None
        (size,) = _HEAD.unpack_from(self._buffer)
        if size > MAX_MESSAGE_BYTES:
            return self._give_up(f"a message of {size} bytes")
        if len(self._buffer) < _HEAD.size + size:
            return None
        data = self._buffer[_HEAD.size : _HEAD.size + size]
        del self._buffer[: _HEAD.size + size]
        try:
            return decode(data, self.hears)
        except Garbled as exc:
            return self._give_up(str(exc))

    def _give_up(self, reason: str) -> None:
        self.closed, self.garbled = True, reason
        self._buffer.clear()

    def close(self) -> None:
        self.closed = True
        self.sock.close()


def framed(message: Any) -> bytes:
    """Encode a message as it is sent over a socket."""
    data = encode(message)
    return _HEAD.pack(len(data)) + data
