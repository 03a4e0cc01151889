"""Libraries that are loaded when they are first used."""

from __future__ import annotations

import subprocess
import sys

import numpy
import pyarrow.compute
import pytest

from tamis import _lazy


def test_a_name_is_its_library() -> None:
    assert (_lazy.np.zeros, _lazy.pa.array, _lazy.pc.sum) == (numpy.zeros, pyarrow.array, pyarrow.compute.sum)
    with pytest.raises(AttributeError, match="no_such_name"):
        _lazy.np.no_such_name  # noqa: B018


def test_what_is_changed_in_the_library_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _lazy.np.zeros is numpy.zeros
    monkeypatch.setattr(numpy, "zeros", "others")
    assert _lazy.np.zeros == "others"


def said_by(code: str) -> tuple[str, str]:
    """Return what a fresh Python prints, and its complaints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.stdout, done.stderr


def test_importing_and_looking_around_load_nothing() -> None:
    code = (
        "import sys; from tamis._lazy import np; hasattr(np, '__wrapped__'); print('numpy' in sys.modules, end=' '); "
        "np.int8; "
        "print('numpy' in sys.modules)"
    )
    assert said_by(code) == ("False True\n", "")


def test_naming_deduplications_loads_nothing_that_runs_them() -> None:
    code = (
        "import sys, tamis.stages.text.deduplication; "
        "heavy = ('tamis.engine.run', 'tamis.engine.worker', 'tamis.backends.execution', 'numpy', 'pyarrow'); "
        "print([m for m in sys.modules if any(f'{m}.'.startswith(f'{h}.') for h in heavy)])"
    )
    assert said_by(code) == ("[]\n", "")
