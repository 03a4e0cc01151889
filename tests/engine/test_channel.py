"""Messages over a socket pair: whole ones only, in order; the end of the other side is noticed."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from tamis.engine.channel import MAX_MESSAGE_BYTES, Channel


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield Channel(ours), theirs
    ours.close()
    theirs.close()


def test_messages_come_back_in_order(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    far = Channel(other)
    assert far.send({"n": 1, "text": "é\x00"})
    assert far.send({"n": 2})
    assert channel.poll() == [{"n": 1, "text": "é\x00"}, {"n": 2}]
    assert channel.poll() == []
    assert not channel.closed


def test_half_a_message_waits_for_its_rest(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    data = struct.pack("<I", 7) + b'{"a":1}'
    for i in range(len(data) - 1):
        other.sendall(data[i : i + 1])
        assert channel.poll() == []
    other.sendall(data[-1:])
    assert channel.poll() == [{"a": 1}]


def test_last_words_are_heard_before_the_end(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    Channel(other).send({"last": True})
    other.close()
    assert channel.poll() == [{"last": True}]
    assert channel.closed


def test_receive_blocks_for_one_and_returns_none_at_the_end(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    Channel(other).send({"a": 1})
    Channel(other).send({"b": 2})
    other.close()
    assert [channel.receive(), channel.receive(), channel.receive()] == [{"a": 1}, {"b": 2}, None]


def test_sending_to_nobody_says_so(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.close()
    assert channel.send({"a": 1}) is False
    assert channel.closed


def test_a_length_beyond_reason_closes_the_channel(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(struct.pack("<I", MAX_MESSAGE_BYTES + 1) + b"x" * 100)
    assert channel.poll() == []
    assert channel.closed
