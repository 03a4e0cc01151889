"""First tracebacks and worker output on the terminal: once, bounded, and only what is new."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tamis.engine.messages import Failure, FailureKind
from tamis.engine.run.console import LINES_AT_ONCE, LINES_PER_S, MAX_ERRORS, Console, ErrorReports, WorkerOutput


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def shown() -> list[str]:
    return []


def failed(error: str, at: str = "mine.py, line 3", kind: FailureKind = FailureKind.ERROR) -> dict[str, object]:
    return Failure(kind, error, "mine", trace=f"Traceback:\n{error}\n", at=at).facts()


def test_each_error_is_shown_once_and_counted(shown: list[str]) -> None:
    reports = ErrorReports(shown.append)
    for n in range(3):
        reports.add(failed(f"ValueError: document {n}"))
    reports.add(failed("ValueError: elsewhere", at="mine.py, line 9"))
    assert shown == [
        "stage 'mine' failed:\nTraceback:\nValueError: document 0",
        "stage 'mine' failed:\nTraceback:\nValueError: elsewhere",
    ]
    reports.close()
    assert shown[2:] == ["stage 'mine': ValueError [mine.py, line 3]: 3 attempts failed"]


def test_a_failed_allocation_is_no_error_of_the_stage(shown: list[str]) -> None:
    ErrorReports(shown.append).add(failed("MemoryError: ", kind=FailureKind.MEMORY))
    assert shown == []


def test_only_so_many_distinct_errors_are_shown_and_nothing_controls_the_terminal(shown: list[str]) -> None:
    reports = ErrorReports(shown.append)
    for n in range(MAX_ERRORS + 5):
        reports.add(failed(f"\x1b[2JError{n}: no"))
    assert len(shown) == MAX_ERRORS
    assert "\x1b" not in "".join(shown)


def test_new_labelled_lines_of_every_log_are_shown(tmp_path: Path, shown: list[str]) -> None:
    log, clock = tmp_path / "worker.log", Clock()
    log.write_text("[mine] of an earlier run\n")
    output = WorkerOutput(str(tmp_path), shown.append, clock)
    with log.open("a") as file:
        file.write("[mine] one\nFatal Python error\n[mine] \x1b[2Jtwo\n[mine] not whole")
    (tmp_path / "worker-node-7.log").write_text("[mine] of a node\n")
    output.poll()
    assert shown == ["[mine] one\n[mine] \\x1b[2Jtwo"]
    clock.now_s = 2.0
    with log.open("a") as file:
        file.write(" yet\n")
    output.poll()
    assert shown[1:] == ["[mine] not whole yet", "[mine] of a node"]
    output.close()
    assert len(shown) == 3


def test_volume_is_bounded_and_what_is_left_out_is_counted(tmp_path: Path, shown: list[str]) -> None:
    log, clock = tmp_path / "worker.log", Clock()
    output = WorkerOutput(str(tmp_path), shown.append, clock)
    log.write_text("".join(f"[mine] {n}\n" for n in range(1000)))
    output.poll()
    clock.now_s = 1.0
    with log.open("a") as file:
        file.write("".join(f"[mine] {n}\n" for n in range(1000)))
    output.poll()
    lines = "\n".join(shown).split("\n")
    assert lines == [f"[mine] {n}" for n in (*range(LINES_AT_ONCE), *range(LINES_PER_S))]
    output.close()
    (last,) = shown[2:]
    assert f"{2000 - LINES_AT_ONCE - LINES_PER_S:,} more lines" in last
    assert str(log) in last


def test_a_flood_is_not_read_and_a_log_that_was_cut_is_gone_on_with(tmp_path: Path, shown: list[str]) -> None:
    log = tmp_path / "worker.log"
    output = WorkerOutput(str(tmp_path), shown.append, Clock())
    with log.open("wb") as file:
        file.write((b"[mine] " + b"x" * 992 + b"\n") * 5000)
        file.write(b"[mine] last\n")
    output.poll()
    assert len(shown) == 1
    assert max(map(len, shown[0].split("\n"))) <= 500
    os.truncate(log, 100)
    output.poll()
    with log.open("a") as file:
        file.write("\n[mine] after\n")
    output._n_allowed = 10
    output.poll()
    assert shown[1:] == ["[mine] after"]


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path, shown: list[str]) -> None:
    (tmp_path / "secret").write_text("[a] b\n")
    output = WorkerOutput(str(tmp_path), shown.append, Clock())
    (tmp_path / "worker.log").symlink_to(tmp_path / "secret")
    output.close()
    assert shown == []


def test_output_can_be_off_while_errors_are_shown(tmp_path: Path, shown: list[str]) -> None:
    console = Console(str(tmp_path), shown.append, shows_output=False)
    (tmp_path / "worker.log").write_text("[mine] one\n")
    console.failed(failed("ValueError: no"))
    console.close()
    assert len(shown) == 1
