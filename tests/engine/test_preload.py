"""A process that loads early: its threads, and what it knows of pandas once a stage has imported it."""

from __future__ import annotations

import subprocess
import sys

from tamis.memory.release import hygiene_env
from tests.support.command import SRC


def test_series_are_series_also_where_arrow_was_loaded_before_pandas() -> None:
    """Arrow remembers that there was none, and would take a series for any other sequence, NaN and all."""
    code = (
        "import sys; from tamis.backends import preload; import pyarrow as pa\n"
        "preload._leave_pandas_out(); assert 'pandas' not in sys.modules\n"
        "import pandas as pd; series = pd.Series([1.0, float('nan')])\n"
        "print(pa.array(series).null_count); preload._take_pandas_in(); print(pa.array(series).null_count)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SRC)}, check=True
    )
    assert done.stdout == "0\n1\n"


def test_a_process_that_is_forked_has_one_thread_when_its_libraries_are_loaded() -> None:
    """Threads are not forked, nor stand they behind the gate.

    And Python 3.15 refuses to fork beside them where warnings are errors.
    """
    code = (
        "import os, sys; from tamis.backends.preload import load_libraries; from tamis.kernels.loading.library import "
        "all_groups\n"
        "load_libraries(all_groups()); print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=hygiene_env({"PYTHONPATH": str(SRC)}),
        check=True,
        timeout=60,
    )
    assert done.stdout == "1\n"
