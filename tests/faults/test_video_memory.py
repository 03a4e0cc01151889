"""Videos inside a budget, seen from outside: 4K, a video of many minutes, and an encoder that cannot fit."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.outside import measured
from tests.support.sample_videos import library, make_video

library()


def blocks(i: int, width: int, height: int) -> np.ndarray[Any, Any]:
    coarse = np.random.default_rng(0).integers(0, 255, (height // 40, width // 40, 3), np.uint8)
    return np.roll(np.repeat(np.repeat(coarse, 40, 0), 40, 1), 4 * i, 1)


def run(videos: Path, out: Path, memory: str, *more: str) -> Any:
    command = [
        sys.executable,
        "-m",
        "tamis.cli.start",
        "video",
        str(videos),
        str(out),
        "--min-clip-seconds",
        "0.2",
        "--memory",
        memory,
    ]
    return measured([*command, "--json", "--quiet", *more], timeout_s=200)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_4k_fits_and_an_encoder_that_does_not_is_refused_with_the_number(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    make_video(tmp_path / "videos/a.mp4", 24, size=(3840, 2160), image=blocks)
    seen = run(tmp_path / "videos", tmp_path / "copy", "400MB", "--min-motion", "0", "--previews")
    assert seen.status == 0, seen.output
    assert seen.peak_bytes <= 400e6
    refused = run(tmp_path / "videos", tmp_path / "encoded", "500MB", "--transcode", "libx264")
    assert refused.status in (3, 4)
    assert refused.peak_bytes <= 500e6
    (least,) = set(re.findall(r"--memory ([0-9]+MB) or more", refused.output))
    encoded = run(tmp_path / "videos", tmp_path / "encoded", least, "--transcode", "libx264")
    assert encoded.status == 0, encoded.output
    assert encoded.peak_bytes <= int(least[:-2]) * 1e6


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_peak_does_not_grow_with_the_length_of_a_video(tmp_path: Path) -> None:
    peaks = []
    for minutes in (1, 20):
        folder = tmp_path / f"{minutes}"
        folder.mkdir()
        make_video(folder / "a.mp4", minutes * 600, fps=10)
        seen = run(folder, tmp_path / f"out{minutes}", "400MB")
        assert seen.status == 0, seen.output
        peaks.append(seen.peak_bytes)
        assert len(list((tmp_path / f"out{minutes}/clips").iterdir())) == minutes * 6
    assert peaks[1] <= peaks[0] * 1.25
