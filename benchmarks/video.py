"""Measure videos: cutting, encoding, TransNetV2 and motion in times real time, and peaks of whole runs.

    python benchmarks/video.py [--small]

Videos are made here (H.264, frames that move), weights are random, which is as fast as trained ones. Without --small
the page in docs/ is written anew. TransNetV2 on a GPU: gpu_media.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from figures import ROWS, exit_code, note, table, write_above_gpu
from measuring import TAMIS, measure

FPS = 24
_GOAL = 100.0  # times as fast as encoding


def make_video(path: Path, width: int, height: int, seconds: float, fps: int = FPS) -> str:
    """Coarse noise that moves four pixels a frame, with a cut every five seconds."""
    import av

    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as made:
        stream = made.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.gop_size, stream.codec_context.thread_count = 2 * fps, 2
        stream.options = {"preset": "ultrafast", "bf": "2"}
        base: Any = None
        for i in range(int(seconds * fps)):
            if i % (5 * fps) == 0:
                coarse = rng.integers(0, 255, (height // 16 + 1, width // 16 + 1), np.uint8)
                base = np.full((height * 3 // 2, width), 128, np.uint8)
                base[:height] = np.repeat(np.repeat(coarse, 16, 0), 16, 1)[:height, :width]
            pixels = base.copy()
            pixels[:height] = np.roll(base[:height], 4 * i, 1)
            frame = av.VideoFrame.from_ndarray(pixels, format="yuv420p")
            frame.pts = i
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
    return str(path)


def cpu_s(do: Callable[[], Any], times: int = 1) -> float:
    began = time.process_time()
    for _ in range(times):
        do()
    return (time.process_time() - began) / times


def cutting(folder: Path, small: bool) -> None:
    from tamis.video.cutting import copy_cut
    from tamis.video.encoding import Encoding, encode_span

    video = make_video(folder / "cut.mp4", 1280, 720, 6 if small else 20)
    start_s, end_s = (1.0, 5.0) if small else (5.0, 15.0)
    target = str(folder / "clip.mp4")
    copied = cpu_s(lambda: copy_cut(video, start_s, end_s, target, "mp4"), 5)
    encoded = cpu_s(lambda: encode_span(video, start_s, end_s, target, "mp4", Encoding("libx264")))
    times = encoded / copied
    what = f"copying {end_s - start_s:.0f} s of 720p, beside libx264"
    note("cutting", what, f"{copied * 1000:.1f} ms, {encoded:.2f} s: {times:.0f} times as fast", times >= _GOAL)


def measuring(folder: Path, small: bool) -> None:
    from tamis.video.facts import read_facts
    from tamis.video.vectors import measure_motion

    seconds = 6.0 if small else 20.0
    video = make_video(folder / "motion.mp4", 1280, 720, seconds)
    note(
        "reading",
        "header and packets of 720p",
        f"{seconds / cpu_s(lambda: read_facts(video), 3):,.0f} times real time, one core",
    )
    took = cpu_s(lambda: measure_motion(video, "h264", FPS, 0.0, seconds))
    note("motion", "vectors and scores of 720p H.264", f"{seconds / took:.0f} times real time, one core")
    again = cpu_s(lambda: measure_motion(video, "vp9", FPS, 0.0, seconds))
    note("motion", "the same by way of a small MPEG-4 copy", f"{seconds / again:.0f} times real time, one core")


def cuts(folder: Path, small: bool) -> None:
    import torch

    from tamis.stages.video.clipping.transnetv2_extraction import TransNetV2ClipExtractionStage
    from tamis.stages.video.models import transnetv2

    seconds = 8.0 if small else 20.0
    video = make_video(folder / "cuts.mp4", 1280, 720, seconds)
    torch.manual_seed(0)
    torch.save(transnetv2.network().state_dict(), folder / transnetv2.WEIGHTS)
    stage = TransNetV2ClipExtractionStage(str(folder))
    stage.setup()
    took = cpu_s(lambda: stage.scenes(video, seconds))
    note("TransNetV2", "720p, decoding and network", f"{seconds / took:.2f} times real time, one core")


def peaks(folder: Path, small: bool) -> None:
    for name, what, size, seconds, fps, more in (
        ("4k", "3 s of 4K, motion measured", (3840, 2160), 1 if small else 3, FPS, ["--min-motion", "0"]),
        ("long", "30 minutes of 640 x 360", (640, 360), 30 if small else 1800, 10, []),
    ):
        (folder / name).mkdir()
        make_video(folder / name / "a.mp4", *size, seconds, fps)
        options = ["--clip-seconds", "10", "--min-clip-seconds", "0.5", "--memory", "400MB", "--quiet", "--json", *more]
        seen = measure([TAMIS, "video", str(folder / name), str(folder / f"{name}-out"), *options])
        peak = seen["peak_pss_mb"]
        note(
            "memory",
            f"{what}: peak of all processes under 400 MB",
            f"{peak:.0f} MB in {seen['wall_s']:.1f} s",
            seen["rc"] == 0 and peak <= 400,
        )
    encode = [
        TAMIS,
        "video",
        str(folder / "4k"),
        str(folder / "refused"),
        "--transcode",
        "libx264",
        "--min-clip-seconds",
        "0.5",
        "--json",
        "--quiet",
    ]
    said = measure([*encode, "--memory", "500MB"])
    told = str(said["said"].get("message", ""))
    note(
        "memory",
        "4K with libx264 under 500 MB",
        f"refused: {told[-70:]}" if said["rc"] else "done",
        said["rc"] in (3, 4),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tamis-video-") as made:
        folder = Path(made)
        cutting(folder, args.small)
        measuring(folder, args.small)
        cuts(folder, args.small)
        peaks(folder, args.small)
    if not args.small:
        head = (
            "Written by `make bench-video`: videos made for it (H.264), random weights; times real time are of CPU "
            "time on one core."
        )
        write_above_gpu(
            "benchmarks-video.md",
            ["# Video", "", f"{head} Load of the machine: {os.getloadavg()[0]:.1f}.", "", *table(ROWS)],
        )
    return exit_code()


if __name__ == "__main__":
    sys.exit(main())
