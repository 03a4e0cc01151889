"""kill -9 in the middle: the same command ends with the same images, each once; nothing half-written is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.run_dirs import data_names, run_dir_path
from tests.support.sample_images import jpeg, members_of, tar

SECONDS = 120


def start(source: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tamis.cli.start", "images", str(source), str(out), "--memory", "600MB", "--quiet"]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True
    )


def ended(process: subprocess.Popen[bytes], after_s: float | None = None) -> int | None:
    """Its exit status; None where it was killed, with all its processes, after some seconds."""
    try:
        return process.wait(after_s if after_s is not None else SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)
        return None


@pytest.mark.slow
def test_twelve_kills_lose_nothing_and_write_nothing_twice(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    expected = {}
    for k in range(4):
        content = {f"{i:03d}.jpg": jpeg(100 * k + i, 300, 200) for i in range(60)}
        tar(source / f"{k}.tar", content)
        expected |= {(k, name): data for name, data in content.items()}
    out, n_killed = tmp_path / "out", 0
    for i in range(12):
        if ended(start(source, out), after_s=0.4 + 0.25 * i) is None:
            n_killed += 1
            time.sleep(0.1)
    assert n_killed >= 3
    assert ended(start(source, out)) == 0
    rows = [row for path in sorted(out.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    stored = [data for path in sorted(out.glob("*.tar")) for data in members_of(path).values()]
    assert len(rows) == len(stored) == len(expected)
    assert len({row["image_id"] for row in rows}) == len(rows)
    assert sorted(stored) == sorted(expected.values())
    assert {Path(name).suffix for name in data_names(out)} == {".tar", ".parquet"}
    assert list((run_dir_path(out) / "staged").iterdir()) == []
