"""Messages between supervisor, forking server and workers: wire.py's bytes with a length in front, over a Unix socket."""

from __future__ import annotations

import select
import socket
import struct
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
        self.fds: list[int] = []  # descriptors that came with messages which were waited for
        self.closed = False
        self.garbled = ""

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Any) -> bool:
        """False when the other side is gone (its death is learned elsewhere)."""
        try:
            self.sock.sendall(framed(message))
        except (BrokenPipeError, ConnectionResetError, OSError):
            self.closed = True
            return False
        return True

    def wait(self, seconds: float) -> bool:
        """Whether something has arrived, waiting for it so long."""
        return bool(self._buffer) or bool(select.select([self.sock], [], [], seconds)[0])

    def receive(self) -> Any:
        """Block for the next message; None when the other side is gone, or cannot be understood."""
        while not self.garbled:
            message = self._next()
            if message is not None:
                return message
            try:
                data, fds, _, _ = socket.recv_fds(self.sock, 1 << 16, _MAX_FDS)
                self.fds += fds
            except (ConnectionResetError, OSError):
                data = b""
            if not data:
                break
            self._buffer += data
        self.closed = True
        return None

    def poll(self) -> list[Any]:
        """Complete messages that have arrived. Sets `closed` at the end of the stream."""
        if self.garbled:
            return []
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

    def _give_up(self, why: str) -> None:
        self.closed, self.garbled = True, why
        self._buffer.clear()

    def close(self) -> None:
        self.closed = True
        self.sock.close()


def framed(message: Any) -> bytes:
    """A message as it goes over a socket."""
    data = encode(message)
    return _HEAD.pack(len(data)) + data


def frame_size(head: bytes | bytearray) -> int:
    """How many bytes of a message follow its first FRAME_HEAD_BYTES."""
    (size,) = _HEAD.unpack_from(head)
    return int(size)


FRAME_HEAD_BYTES = _HEAD.size
