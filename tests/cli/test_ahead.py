"""Modules for the end of a run are imported beside it, and never change what it says."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from tamis.cli import ahead


def test_modules_are_imported_later_and_those_that_fail_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tamis_probe_good.py").write_text("value = 7\n")
    (tmp_path / "tamis_probe_bad.py").write_text("raise RuntimeError('no')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(ahead, "_AFTER_S", 0.0)
    before = set(threading.enumerate())
    ahead.import_ahead("tamis_probe_bad", "tamis_probe_gone", "tamis_probe_good")
    for thread in set(threading.enumerate()) - before:
        assert thread.daemon
        thread.join(30)
    assert sys.modules["tamis_probe_good"].value == 7
    assert "tamis_probe_bad" not in sys.modules
    del sys.modules["tamis_probe_good"]
