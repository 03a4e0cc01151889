"""benchmarks/gpu_media.py: figures become rows of two pages, parts that failed do not.

A process that does not end is ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import figures  # noqa: E402
import gpu_media  # noqa: E402
import gpu_media_page  # noqa: E402

RUN = {
    "n": 24_000,
    "per_s": 900.0,
    "per_s_steady": 1580.0,
    "busy": 80.0,
    "busy_after_warm_up": 88.0,
    "seconds": 26.0,
    "warm": {"documents_per_s": 1600.0, "gpu_busy": 0.91},
}
FIGURES = {
    "machine": {"gpu": "a card", "cores": 16, "torch": "2.11"},
    "clip": RUN,
    "quality": {"error": "RuntimeError: no"},
    "decode": {
        "images": "640 x 480",
        "cores": 16,
        "squares_per_s": 700.0,
        "squares_per_s_all_cores": 9000.0,
        "simplejpeg_per_s": 800.0,
    },
    "clip-model": {"per_s_32": 2000.0, "per_s_128": 2200.0, "eager_per_s_32": 1500.0, "tflops": 324.0},
    "transnet-model": {"frames_per_s": 10_000.0, "float32_frames_per_s": 5000.0},
    "transnet": {
        "one_video_times": 20.0,
        "decoding_and_scaling_times": 22.0,
        "run": {"n": 16, "videos_s": 960, "busy": 50.0, "times_real_time": 100.0},
    },
}


def test_rows_of_both_pages() -> None:
    rows = {what: (measured, kept) for _, what, measured, kept in gpu_media_page.image_rows(FIGURES)}
    assert rows["24,000 images, tars to tars with embeddings"] == (
        "1,600/s, GPU busy 91 %; 26 s with the start",
        "yes",
    )
    assert rows["network alone, squares given (batch)"] == ("2,000/s (32), 2,200/s (128); 324 TFLOP/s", "")
    assert not any("NSFW" in what for what in rows)
    videos = [measured for _, _, measured, _ in gpu_media_page.video_rows(FIGURES)]
    assert videos[-1] == "100 times real time, start included; GPU busy 50 %"


def test_a_section_is_written_anew_and_stays_when_the_rest_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    monkeypatch.setattr(gpu_media_page, "DOCS", tmp_path)
    for name in ("benchmarks-images.md", "benchmarks-video.md"):
        (tmp_path / name).write_text("# Page\n\nold rows\n")
    gpu_media_page.write_pages(FIGURES)
    once = (tmp_path / "benchmarks-video.md").read_text()
    gpu_media_page.write_pages(FIGURES)
    assert (tmp_path / "benchmarks-video.md").read_text() == once
    figures.write_above_gpu("benchmarks-video.md", ["# Page", "", "new rows"])
    again = (tmp_path / "benchmarks-video.md").read_text()
    assert again == once.replace("old rows", "new rows")


def test_a_part_that_fails_or_hangs_says_so() -> None:
    env = dict(os.environ)
    assert gpu_media.ask([sys.executable, "-c", 'print("x"); print(\'{"n": 1}\')'], env, 60.0) == {"n": 1}
    assert gpu_media.ask([sys.executable, "-c", "raise SystemExit('no card')"], env, 60.0) == {
        "error": "ended with 1",
        "said": "no card\n",
    }
    slow = gpu_media.ask([sys.executable, "-c", "import time; time.sleep(60)"], env, 1.0)
    assert slow["error"] == "not done after 1 s"
