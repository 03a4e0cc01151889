"""What a process that loads early knows of pandas once a stage has imported it."""

from __future__ import annotations

import subprocess
import sys

from command import SRC


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
