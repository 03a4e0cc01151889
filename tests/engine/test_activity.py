"""What a worker is doing is known also when it is gone."""

from __future__ import annotations

import os
import signal

from tamis.engine import activity as doing
from tests.support.forks import fork


def test_what_a_killed_process_was_doing_is_kept() -> None:
    page = doing.shared_page()
    told, tell = os.pipe()
    pid = fork()
    if pid == 0:
        doing.note_in(page)
        for what in ("(reading)", "a stage with a long name " * 20, "c4"):
            doing.note(what)
        os.write(tell, b"x")
        signal.pause()
    os.read(told, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(told)
    os.close(tell)
    assert doing.noted(page) == "c4"
    assert doing.now() == ""


def test_names_of_any_length_and_kind_fit() -> None:
    page = doing.shared_page()
    doing.note_in(page)
    try:
        assert doing.noted(page) == ""
        for what, seen in [("é" * 300, "é" * 125), ("lone \ud800", "lone ?"), ("", "")]:
            doing.note(what)
            assert (doing.noted(page), doing.now()) == (seen, what)
    finally:
        doing._page = None
        doing.note("")
