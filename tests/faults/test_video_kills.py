"""SIGKILL while videos are split, twenty times, then the same command: the same clips, none twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.faults.fault_harness import env
from tests.support.outside import below
from tests.support.run_dirs import run_dir_path
from tests.support.sample_videos import library, make_video

library()


def start(videos: Path, out: Path, memory: str = "600MB") -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tamis.cli.start",
        "video",
        str(videos),
        str(out),
        "--clip-seconds",
        "1",
        "--min-clip-seconds",
        "0.5",
    ]
    options = ["--transcode", "libx264", "--memory", memory, "--quiet", "--json"]
    return subprocess.Popen(
        [*command, *options],
        env=env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def clips(out: Path) -> dict[str, str]:
    """Id and checksum of every clip of the table; each once, and each file there as the table says."""
    rows: list[dict[str, Any]] = [r for p in sorted(out.glob("*.parquet")) for r in pq.read_table(p).to_pylist()]
    assert len({r["id"] for r in rows}) == len(rows)
    assert sorted(p.stem for p in (out / "clips").iterdir()) == sorted(r["id"] for r in rows)
    return {r["id"]: r["clip_sha256"] for r in rows}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_kills(tmp_path: Path) -> None:
    rng = random.Random(7)
    (tmp_path / "videos").mkdir()
    for i in range(10):
        make_video(tmp_path / f"videos/{i}.mp4", 120, size=(640, 360))
    clean = start(tmp_path / "videos", tmp_path / "clean")
    told, _ = clean.communicate(timeout=200)
    assert clean.returncode == 0, told
    wanted = clips(tmp_path / "clean")
    assert len(wanted) == 50
    n_kills = 0
    out = tmp_path / "out"
    while n_kills < 20:
        run = start(tmp_path / "videos", out, rng.choice(["600MB", "700MB", "1GB"]))
        began = time.monotonic()
        time.sleep(rng.uniform(0.8, 2.5))
        family = [run.pid, *below(run.pid)]
        victim = rng.choice(family)
        try:
            os.kill(victim, signal.SIGKILL)
            n_kills += 1
        except ProcessLookupError:
            pass
        if victim != run.pid and rng.random() < 0.5:
            time.sleep(rng.uniform(0, 0.5))
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        run.communicate(timeout=100)
        if run.returncode == 0 and time.monotonic() - began > 0 and (run_dir_path(out) / "manifest.json").exists():
            subprocess.run(
                ["rm", "-rf", str(out)], check=True, timeout=60
            )  # it was through: once more from the beginning
    last = start(tmp_path / "videos", out)
    told, _ = last.communicate(timeout=200)
    assert last.returncode == 0, told
    assert json.loads(told)["status"] in ("finished", "already")
    assert clips(out) == wanted
    assert not list(out.rglob("*.part"))
