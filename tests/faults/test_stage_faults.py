"""Stages that raise, hang, leak, exit, crash or hoard memory: one bad record never takes others with it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tamis import LocalExecutor
from tamis.errors import Incomplete, StageError
from tests.faults.fault_harness import (
    assert_conserved,
    documents,
    events,
    execute,
    lines_of,
    make_pipeline,
    quarantine,
    write_lines,
)
from tests.faults.fault_stages import (
    BabbleOn,
    Chatter,
    ExitOn,
    HangOn,
    HogOn,
    Leak,
    Parent,
    RaiseOn,
    SegfaultOn,
    WordList,
)
from tests.support.run_dirs import run_dir_path


def _trigger(word: str, i: int = 0) -> bytes:
    return b'{"id":%d, "text": "a %s b" }' % (-1 - i, word.encode())


def _input(tmp_path: Path, word: str, n: int, at: tuple[int, ...]) -> tuple[Path, list[bytes], list[bytes]]:
    """Make a file with trigger records at these positions; return it, the good lines and the triggers."""
    good = documents(n)
    lines, triggers = list(good), [_trigger(word, i) for i in range(len(at))]
    for place, trigger in zip(at, triggers, strict=True):
        lines.insert(place, trigger)
    return write_lines(tmp_path / "in" / "a.jsonl", lines).parent, good, triggers


def _check_one_lost(
    tmp_path: Path, result: Any, good: list[bytes], triggers: list[bytes], stage: str, reason: str
) -> None:
    """Exactly the trigger records are in quarantine, with place, bytes and reason; everything else is written."""
    assert_conserved(result)
    assert sorted(lines_of(tmp_path / "out")) == sorted(good)
    data = (tmp_path / "in" / "a.jsonl").read_bytes()
    entries = sorted(quarantine(tmp_path / "out"), key=lambda e: int(e["offset"]))
    assert [e["bytes"] for e in entries] == triggers
    for entry in entries:
        assert entry["file"] == str(tmp_path / "in" / "a.jsonl")
        assert data[entry["offset"] : entry["offset"] + entry["length"]] == entry["bytes"]
        assert reason in entry["reason"]
        assert entry["stage"] == stage
    assert result.ledger.quarantined.n == len(triggers)
    assert {b.name: b.quarantined.n for b in result.ledger.stages} == {stage: len(triggers)}
    assert result.ledger.unread.n == 0
    assert result.exit_code == 0


@pytest.mark.parametrize("places", [(137,), (0, 200, 402)], ids=["one", "three"])
def test_raises_on_some_records(tmp_path: Path, places: tuple[int, ...]) -> None:
    source, good, triggers = _input(tmp_path, "RAISE", 400, places)
    result = execute(source, tmp_path / "out", [RaiseOn("RAISE")])
    _check_one_lost(tmp_path, result, good, triggers, "raise_on", "ValueError: cannot bear 'RAISE'")
    assert all(e["stage"] == "raise_on" for e in quarantine(tmp_path / "out"))
    assert result.counters["splits"] > 0


def test_raises_on_a_record_of_a_fed_stream(tmp_path: Path) -> None:
    import gzip

    good = documents(2000)
    data = b"\n".join([*good[:900], _trigger("RAISE"), *good[900:]])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
    result = execute(tmp_path / "in", tmp_path / "out", [RaiseOn("RAISE")], blocksize="64KiB")
    assert_conserved(result)
    assert sorted(lines_of(tmp_path / "out")) == sorted(good)
    (entry,) = quarantine(tmp_path / "out")
    assert entry["file"] == str(tmp_path / "in" / "a.jsonl.gz")
    assert (entry["bytes"], entry["offset"], entry["unit"]) == (
        _trigger("RAISE"),
        data.index(_trigger("RAISE")),
        "decoded bytes",
    )


def test_raises_in_a_later_segment(tmp_path: Path) -> None:
    source, good, triggers = _input(tmp_path, "RAISE", 100, (50,))
    result = execute(
        source, tmp_path / "out", [RaiseOn("NEVER"), RaiseOn("RAISE").with_(name="second")], settings={"mode": "batch"}
    )
    assert_conserved(result)
    assert sorted(lines_of(tmp_path / "out")) == sorted(good)
    (entry,) = quarantine(tmp_path / "out")
    assert entry["bytes"] == triggers[0]
    assert entry["stage"] == "second"
    assert [(b.name, b.into.n, b.quarantined.n) for b in result.ledger.stages] == [
        ("raise_on", 101, 0),
        ("second", 101, 1),
    ]
    assert (result.ledger.quarantined.n, result.ledger.unread.n, result.ledger.n_dropped) == (1, 0, 0)


def test_raises_always(tmp_path: Path) -> None:
    """A mistake in the stage, not in the data: the run stops early and says so, instead of quarantining everything."""
    write_lines(tmp_path / "in" / "a.jsonl", documents(3000))
    with pytest.raises(StageError, match="fails on"):
        make_pipeline(tmp_path / "in", tmp_path / "out", [RaiseOn("")]).run(LocalExecutor(), memory="512MB")
    assert quarantine(tmp_path / "out") == []
    assert any(kind == "failed" and "cannot bear" in data["error"] for kind, data in events(tmp_path / "out"))


def test_hangs_past_the_timeout(tmp_path: Path) -> None:
    source, good, triggers = _input(tmp_path, "HANG", 3, (1,))
    began = time.monotonic()
    result = execute(source, tmp_path / "out", [HangOn()], settings={"timeout": 1.0})
    _check_one_lost(tmp_path, result, good, triggers, "hang_on", "timeout")
    assert result.counters["kills"] >= 2
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("stage", "word", "how"),
    [
        (ExitOn, "EXIT", "exit status 3"),
        (SegfaultOn, "SEGFAULT", "SIGSEGV"),
        (BabbleOn, "BABBLE", "it sent an invalid message (TypeError: int where str is expected)"),
    ],
)
def test_takes_the_process_down(tmp_path: Path, stage: Any, word: str, how: str) -> None:
    source, good, triggers = _input(tmp_path, word, 60, (33,))
    result = execute(source, tmp_path / "out", [stage()])
    _check_one_lost(tmp_path, result, good, triggers, stage.name, how)
    assert result.counters["crashes"] >= 2
    assert next(d["stage"] for kind, d in events(tmp_path / "out") if kind == "died" and how in d["how"]) == stage.name


def test_one_record_without_bound_ends_incomplete_with_the_rest_committed(tmp_path: Path) -> None:
    source, good, _ = _input(tmp_path, "HOG", 60, (20,))
    with pytest.raises(Incomplete, match=r"--memory \d+MB or more") as caught:
        make_pipeline(source, tmp_path / "out", [HogOn()]).run(LocalExecutor(), memory="420MB")
    assert str(source / "a.jsonl") in str(caught.value)
    assert sorted(lines_of(tmp_path / "out")) == sorted(good)
    assert any(kind == "failed" and data["kind"] == "memory" for kind, data in events(tmp_path / "out"))
    # The same command again still has that one record to do, and only that.
    with pytest.raises(Incomplete, match=r"--memory \d+MB or more"):
        make_pipeline(source, tmp_path / "out", [HogOn()]).run(LocalExecutor(), memory="512MB")
    assert sorted(lines_of(tmp_path / "out")) == sorted(good)


def test_a_list_of_every_word_finishes_by_splitting(tmp_path: Path) -> None:
    """Documents of one word first, so that partitions grow; then 5 million words, 300 MB of Python objects."""
    texts = [b"x" * 90_000] * 300 + [b"ab " * 30_000] * 170
    lines = [b'{"id":%d,"text":"%s"}' % (i, text) for i, text in enumerate(texts)]
    write_lines(tmp_path / "in" / "a.jsonl", lines)
    result = execute(tmp_path / "in", tmp_path / "out", [WordList()], settings={"memory": "420MB"})
    assert_conserved(result)
    assert result.exit_code == 0
    assert result.counters["memory_failures"] > 0, "everything fitted: nothing was tested"
    assert result.counters["splits"] > 0
    assert result.peak_bytes <= 420_000_000
    assert sorted(lines_of(tmp_path / "out")) == sorted(line[:-1] + b',"n_all":1}' for line in lines)


def test_a_leak_is_recycled(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(30_000))
    result = execute(
        tmp_path / "in", tmp_path / "out", [Leak()], blocksize="64KiB", settings={"memory": "250MB", "workers": 1}
    )
    assert_conserved(result)
    assert result.exit_code == 0
    assert result.counters["recycled"] >= 1
    assert result.peak_bytes <= 420_000_000
    assert len(lines_of(tmp_path / "out")) == 30_000


def test_prints_a_lot(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(5000))
    result = execute(tmp_path / "in", tmp_path / "out", [Chatter()], blocksize="64KiB")
    assert_conserved(result)
    assert len(lines_of(tmp_path / "out")) == 5000
    assert b"chatter chatter" in (run_dir_path(tmp_path / "out") / "worker.log").read_bytes()[-4096:]
    shown = capfd.readouterr()
    assert "chatter" not in shown.out
    assert 0 < shown.err.count("[chatter]") < 2000, "a part of it is shown, the rest is counted"


def test_a_child_process_that_allocates(tmp_path: Path) -> None:
    """A child has no cap of its own, and cannot give itself another."""
    source, good, _ = _input(tmp_path, "CHILD", 3, (1,))
    with pytest.raises(Incomplete, match=r"--memory \d+MB or more"):
        make_pipeline(source, tmp_path / "out", [Parent()]).run(LocalExecutor(), memory="512MB")
    assert sorted(lines_of(tmp_path / "out")) == sorted(good)
    assert any(kind == "failed" and data["kind"] == "memory" for kind, data in events(tmp_path / "out"))
    left = [
        p.pid
        for p in psutil.process_iter(["cmdline", "uids"])
        if "hoard.append" in " ".join(p.info["cmdline"] or ()) and p.info["uids"].real == os.getuid()
    ]
    assert left == [], "a child of a killed worker is still there"
