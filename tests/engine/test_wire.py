"""Messages as bytes and back: every kind survives, and nothing that is none of them gets through."""

from __future__ import annotations

import json

import pytest

from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.messages import (
    ORDERS,
    WORKER_MESSAGES,
    Assign,
    Block,
    Done,
    Exit,
    Failure,
    FailureKind,
    Handover,
    More,
    Read,
    Ready,
    RetainedMemory,
    RowsTooLarge,
    SetUp,
    StagedFile,
    StageUse,
    StreamTooLarge,
    Trim,
    Vitals,
    about,
)
from tamis.engine.schema import CoveredRange, FileKind
from tamis.engine.units import Mode, Piece, PieceKind, Unit
from tamis.engine.wire import Garbled, decode, encode

PIECE = Piece(2, PieceKind.BLOCK, "s/f\udcff.block", 10, 20, 5, "in.gz", "check")
FILE = StagedFile(
    "u1.out", FileKind.OUTPUT, 3, 40, "jsonl.gz", "ab", "{}", None, "c", joins=True, at=0, place=(1, 2, 3)
)


def books() -> Ledger:
    made = Ledger(stages=[StageBook("rules", seconds=0.25)])
    made.records.add(3, 1 << 127)
    made.stages[0].drop("short", 1, 7, 99, [(0, 1, "id")])
    return made


SAID = [
    Ready(7, Vitals(1, 2, 3, 4, 5, 6, None)),
    SetUp(10, 20, unit=1, fence=2),
    Read(4, -1, 100, 50, unit=1, fence=2),
    Block(PIECE, 9, 8, unit=1, fence=2),
    StreamTooLarge(1, 2, 3),
    RowsTooLarge(1, [(0, 5, 50), (5, 5, 60)], 10, whole=False, measured=True),
    Failure(
        FailureKind.ERROR, "é\x00", "s", "trace", "at", 1 << 70, is_usage=True, in_setup=True, peak_bytes=3, cpu_s=0.5
    ),
    Done(
        3,
        100,
        50,
        [CoveredRange(0, 0, 100, False)],
        [FILE, StagedFile("x", FileKind.LISTED)],
        books(),
        Handover("h", 2, 3, "c"),
        "schema",
        [StageUse("rules", 10, 0.5, 9)],
        RetainedMemory([("rules", {"malloc_bytes": -5})], 7, "dict"),
        vitals=Vitals(1),
        seconds=1.5,
    ),
]
ORDERED = [Assign(Unit(7, [PIECE], 1, Mode.FEED, handover_rows=(3, 8)), 41), More(5), Trim(), Exit()]


def test_every_kind_is_tried_here() -> None:
    assert {type(m).__name__ for m in SAID} == set(WORKER_MESSAGES)
    assert {type(m).__name__ for m in ORDERED} == set(ORDERS)


@pytest.mark.parametrize("message", SAID, ids=lambda m: type(m).__name__)
def test_what_a_worker_says_survives(message: object) -> None:
    assert decode(encode(message), WORKER_MESSAGES) == message


@pytest.mark.parametrize("message", ORDERED, ids=lambda m: type(m).__name__)
def test_what_a_worker_receives_survives(message: object) -> None:
    assert decode(encode(message), ORDERS) == message


def test_news_say_of_which_attempt_they_are() -> None:
    assert about(Read(4, -1), 7, 41) == Read(4, -1, unit=7, fence=41)


@pytest.mark.parametrize("message", SAID, ids=lambda m: type(m).__name__)
def test_no_field_takes_another_type(message: object) -> None:
    """Whatever is put in the place of a field: it is refused, or it is what the field may hold."""
    good = json.loads(encode(message))
    for name in good.keys() - {"type"}:
        for wrong in ({}, {"a": 1}, [], [[]], "x", 1.5, True, 1 << 200, float("nan"), -1):
            data = json.dumps({**good, name: wrong}).encode()
            try:
                got = decode(data, WORKER_MESSAGES)
            except Garbled:
                continue
            told = json.loads(encode(got))[name]
            assert told == wrong or (wrong == {} and isinstance(told, dict)), (name, wrong)  # {}: all its defaults


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        b"null",
        b"[]",
        b"1",
        b'{"type":1}',
        b'{"type":[]}',
        b'{"type":"More","block_bytes":1}',
        b'{"type":"Ready"}',
        b'{"type":"SetUp","retained_bytes":1,"peak_bytes":1,"more":1}',
        b"[" * 100_000,
        b'{"type":"Read","n_records":1e400,"cut":1}',
        b'{"type":"SetUp","retained_bytes":' + b"9" * 5000 + b',"peak_bytes":1}',
        b"\x80\x04\x95cposix\nsystem\n",
        b"\xff\xfe",
        b'{"type":"Done","ledger":{"stages":7}}',
        b'{"type":"Done","files":[{"path":1,"kind":"output"}]}',
    ],
)
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(Garbled):
        decode(data, WORKER_MESSAGES)
