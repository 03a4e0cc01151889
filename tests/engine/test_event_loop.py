"""Scratch that nobody needs is removed without the loop waiting for it, and before anybody uses its names again."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tamis.engine.run.event_loop import Discarder


def test_a_disk_that_hangs_blocks_no_caller_until_names_may_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, own = threading.Event(), os.unlink

    def slow(path: str) -> None:
        hangs.wait(30)
        own(path)

    monkeypatch.setattr("tamis.engine.run.event_loop.os.unlink", slow)
    names = [str(tmp_path / f"f{i}.1") for i in range(20)]
    for name in names:
        Path(name).write_bytes(b"x")
    discarder = Discarder()
    for name in [str(tmp_path / "was never there"), *names]:
        discarder.add(name)
    assert all(map(os.path.exists, names))
    hangs.set()
    discarder.close()
    assert not any(map(os.path.exists, names))
    Path(names[0]).write_bytes(b"y")
    discarder.add(names[0])  # it begins again
    discarder.close()
    discarder.close()
    assert not os.path.exists(names[0])
