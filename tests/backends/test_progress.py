"""The progress line."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.backends import progress
from tamis.backends.progress import ProgressDisplay, ProgressRates


def state(seconds: float, left: int, read: int, **more: Any) -> dict[str, Any]:
    return {
        "phase": "working",
        "share": 1.0,
        "seconds": seconds,
        "used_bytes": 300_000_000,
        "budget_bytes": 512_000_000,
        "total_bytes": 1000,
        "left_bytes": left,
        "documents": 1234,
        "written": 1000,
        "dropped": 200,
        "quarantined": 34,
        "read_bytes": read,
        **more,
    }


def test_a_line_has_everything() -> None:
    rates = ProgressRates()
    first = rates.line(state(1.0, 1000, 0))
    assert first.startswith("  0 %")
    assert "  ETA -:--  " in first
    assert rates.line(state(11.0, 500, 55_000_000)) == (
        " 50 %  ETA 0:10  memory 300 MB / 512 MB  5 MB/s  1,234 documents  kept 1,000  dropped 200  quarantined 34"
    )


def test_the_next_sampling_step_starts_over() -> None:
    rates = ProgressRates()
    rates.line(state(1.0, 1000, 0, share=0.01))
    assert "(sample of 0.01)" in rates.line(state(5.0, 0, 10_000_000, share=0.01))
    assert "  ETA -:--  " in rates.line(state(6.0, 1000, 10_000_000))
    line = rates.line(state(10.0, 500, 20_000_000))
    assert "2 MB/s" in line
    assert "  ETA 0:04  " in line


def test_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with ProgressDisplay() as shown:
        shown.show({"phase": "starting"})
        shown.show({"phase": "compiling", "done": 0, "of": 43, "seconds_left": 26})
        for i in range(60):
            clock[0] += 0.2
            shown.show(state(i * 0.2, 1000, 0))
        shown.show({"phase": "schema"})
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        "compiling kernels that were edited or not built for this CPU (once): 0 of 43, about 0:26 left ..."
    )
    assert [line[:5] for line in lines[1:3]] == ["  0 %", "  0 %"]
    assert lines[3:] == ["bringing all files to one schema ..."]


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay(quiet=True) as shown:
        shown.show({"phase": "compiling", "done": 0, "of": 43, "seconds_left": 26})
    assert capsys.readouterr().err == ""


def test_a_broken_terminal_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", refuse)
    with ProgressDisplay() as shown:
        shown.show({"phase": "compiling", "done": 0, "of": 43, "seconds_left": 26})


def test_on_a_terminal_one_line_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with ProgressDisplay() as shown:
        shown.show({"phase": "starting"})
        shown.show(state(1.0, 1000, 0))
    assert "1,234 documents" in terminal.getvalue()


def test_a_note_stays_and_is_not_shown_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay() as shown:
        shown.note("alert memory: [bold]91 %[/bold]")
    with ProgressDisplay(quiet=True) as shown:
        shown.note("nothing")
    assert capsys.readouterr().err == "alert memory: [bold]91 %[/bold]\n"
