"""Messages over a socket pair: whole ones only, in order; the end of the other side is noticed."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tamis.engine.channel import MAX_MESSAGE_BYTES, Channel
from tamis.engine.wire import kinds


@dataclass(frozen=True)
class Line:
    n: int
    text: str = ""


HEARD = kinds(Line)


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield Channel(ours, HEARD), theirs
    ours.close()
    theirs.close()


def test_messages_come_back_in_order(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    far = Channel(other, HEARD)
    assert far.send(Line(1, "é\x00"))
    assert far.send(Line(2))
    assert channel.poll() == [Line(1, "é\x00"), Line(2)]
    assert channel.poll() == []
    assert not channel.closed


def test_half_a_message_waits_for_its_rest(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    data = struct.pack("<I", 21) + b'{"type":"Line","n":1}'
    for i in range(len(data) - 1):
        other.sendall(data[i : i + 1])
        assert channel.poll() == []
    other.sendall(data[-1:])
    assert channel.poll() == [Line(1)]


def test_last_words_are_heard_before_the_end(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    Channel(other, HEARD).send(Line(9))
    other.close()
    assert channel.poll() == [Line(9)]
    assert channel.closed


def test_receive_blocks_for_one_and_returns_none_at_the_end(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    Channel(other, HEARD).send(Line(1))
    Channel(other, HEARD).send(Line(2))
    other.close()
    assert [channel.receive(), channel.receive(), channel.receive()] == [Line(1), Line(2), None]


def test_sending_to_a_closed_peer_returns_false(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.close()
    assert channel.send(Line(1)) is False
    assert channel.closed


def test_a_length_beyond_reason_closes_the_channel(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(struct.pack("<I", MAX_MESSAGE_BYTES + 1) + b"x" * 100)
    assert channel.poll() == []
    assert channel.closed
    assert channel.garbled == f"a message of {MAX_MESSAGE_BYTES + 1} bytes"


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", b"[1]", b'{"type":"Other"}', b'{"type":"Line","n":"1"}', b"\xff" * 9]
)
def test_after_what_cannot_be_understood_nothing_is_heard(pair: tuple[Channel, socket.socket], data: bytes) -> None:
    channel, other = pair
    far = Channel(other, HEARD)
    far.send(Line(1))
    other.sendall(struct.pack("<I", len(data)) + data)
    far.send(Line(2))
    assert channel.poll() == [Line(1)]
    assert channel.garbled
    assert channel.closed
    assert (channel.poll(), channel.receive()) == ([], None)
