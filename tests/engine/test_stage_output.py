"""Streams of workers: whole lines with the label of the stage, never an error and never a wait."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tamis.engine import activity
from tamis.engine.worker.stage_output import MAX_LINE, StageStream


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[StageStream, Path]]:
    path = tmp_path / "worker.log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    activity.note("mine")
    yield StageStream(fd), path
    activity.note("")
    os.close(fd)


def test_whole_lines_carry_the_label(log: tuple[StageStream, Path]) -> None:
    stream, path = log
    print("one", 2, file=stream)
    print("three", end="", file=stream, flush=True)
    assert path.read_text() == "[mine] one 2\n"
    activity.note("other")
    print(" four\nfive", file=stream)
    activity.note("")
    stream.write("rest\n")
    activity.note("mine")
    stream.write("no end")
    activity.note("")
    stream.end_line()
    stream.end_line()
    assert path.read_text() == "[mine] one 2\n[other] three four\n[other] five\n[workers] rest\n[mine] no end\n"


def test_a_progress_bar_is_one_line(log: tuple[StageStream, Path]) -> None:
    stream, path = log
    for n in range(100_000):
        stream.write(f"\r{n} %")
    stream.write("\n")
    stream.write("\r\n")
    assert path.read_text() == "[mine] 99999 %\n[mine] \n"


def test_what_cannot_be_encoded_or_is_too_long_is_written_all_the_same(log: tuple[StageStream, Path]) -> None:
    stream, path = log
    stream.write("\ud800\n" + "x" * 10 * MAX_LINE + "\n")
    first, second = path.read_text().splitlines()
    assert (first, len(second)) == ("[mine] \\ud800", MAX_LINE + len("[mine] "))
    with pytest.raises(TypeError):
        stream.write(b"bytes")  # type: ignore[arg-type]


def test_a_stream_that_cannot_be_written_to_is_no_error() -> None:
    with open("/dev/full", "wb") as full:
        stream = StageStream(full.fileno())
        assert stream.write("lost\n") == 5
        stream.flush()


def test_it_is_a_stream_like_others(log: tuple[StageStream, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    stream, path = log
    assert (stream.isatty(), stream.writable(), stream.readable(), stream.encoding) == (False, True, False, "utf-8")
    assert os.fstat(stream.fileno()).st_size == 0
    stream.buffer.write(b"bytes\n")
    monkeypatch.setattr(sys, "stderr", stream)
    logger = logging.getLogger("a.user")
    monkeypatch.setattr(logger, "propagate", False)  # pytest has handlers of its own
    logger.warning("%d left", 3)
    assert path.read_text() == "bytes\n[mine] 3 left\n"
