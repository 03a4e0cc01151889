"""Motion scores, against a twin that sums over single pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tamis.errors import UsageError
from tamis.stages.video.filtering.motion_vector_backend import (
    VideoResolutionTooSmallError,
    check_if_small_motion,
    decode_for_motion,
    motion_vectors_to_flowfield,
)
from tamis.video.facts import read_facts
from tamis.video.motion import TOO_SMALL, MotionMap, n_examined_frames
from tamis.video.vectors import measure_motion, sampled_vectors
from tests.support.sample_videos import library, make_video

library()
_NOISE = np.repeat(np.repeat(np.random.default_rng(0).integers(0, 255, (80, 160, 3), np.uint8), 4, 0), 4, 1)


def still(i: int, width: int, height: int) -> np.ndarray[Any, Any]:
    return _NOISE[:height, :width]


def pan(i: int, width: int, height: int) -> np.ndarray[Any, Any]:
    return np.roll(_NOISE, 3 * i, 1)[:height, :width]


def twin(frames: list[np.ndarray[Any, Any]], height: int, width: int) -> tuple[float, float]:
    """Compute the formula as published: a field of pixels per frame, bilinear shrinking by hand."""
    fields = []
    for vectors in frames:
        field = np.zeros((height, width))
        for v in vectors:
            x0, y0 = int(v["dst_x"]) - int(v["w"]) // 2, int(v["dst_y"]) - int(v["h"]) // 2
            size = float(np.sqrt(float(v["motion_x"]) ** 2 + float(v["motion_y"]) ** 2)) / int(v["motion_scale"])
            for y in range(max(0, y0), min(height, y0 + int(v["h"]))):
                for x in range(max(0, x0), min(width, x0 + int(v["w"]))):
                    field[y, x] = size / (height + width)
        fields.append(field)
    mean = np.mean(fields, axis=0)
    patches = []
    for py in range(height // 256):
        for px in range(width // 256):
            y, x = (py + 0.5) * 256 - 0.5, (px + 0.5) * 256 - 0.5
            a, b = int(np.floor(y)), int(np.floor(x))
            fy, fx = y - a, x - b
            patches.append(
                mean[a, b] * (1 - fy) * (1 - fx)
                + mean[a + 1, b] * fy * (1 - fx)
                + mean[a, b + 1] * (1 - fy) * fx
                + mean[a + 1, b + 1] * fy * fx
            )
    return float(np.mean(fields)), float(min(patches))


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("moving")
    size = (528, 300)  # sides that are no multiples of 16: blocks hang over the edge
    return {
        "pan": make_video(folder / "pan.mp4", 30, size=size, draw=pan),
        "pan mpeg4": make_video(folder / "pan.avi", 30, "mpeg4", size=size, draw=pan),
        "pan vp9": make_video(folder / "pan.webm", 24, "libvpx-vp9", size=size, draw=pan),
        "still": make_video(folder / "still.mp4", 30, size=size, draw=still),
        "small": make_video(folder / "small.mp4", 12),
        "keyframes": make_video(folder / "key.mp4", 30, size=size, draw=pan, keyframe_every=12),
    }


@pytest.mark.parametrize("name", ["pan", "pan mpeg4"])
def test_scores_are_those_of_the_formula(name: str, videos: dict[str, str]) -> None:
    facts = read_facts(videos[name])
    told = [v for _, _, v in sampled_vectors(videos[name], facts.codec, facts.fps, 0.0, 1.25, 4.0) if v is not None]
    expected = twin(told, facts.height, facts.width)
    motion = measure_motion(videos[name], facts.codec, facts.fps, 0.0, 1.25, 4.0)
    assert motion.n_frames == len(told) >= 4
    assert motion.global_mean == pytest.approx(expected[0], rel=1e-9, abs=1e-12)
    assert motion.per_patch_min_256 == pytest.approx(expected[1], rel=1e-9, abs=1e-12)


def test_random_vectors_of_every_block(videos: dict[str, str]) -> None:
    rng = np.random.default_rng(3)
    kind = np.dtype(
        [
            ("w", "u1"),
            ("h", "u1"),
            ("dst_x", "i2"),
            ("dst_y", "i2"),
            ("motion_x", "i4"),
            ("motion_y", "i4"),
            ("motion_scale", "u2"),
        ]
    )
    frames = []
    for _ in range(3):
        vectors = np.zeros(400, kind)
        vectors["w"], vectors["h"] = rng.choice([8, 16], 400), rng.choice([8, 16], 400)
        vectors["dst_x"] = rng.integers(0, 68, 400) * 8 + vectors["w"] // 2 - 8
        vectors["dst_y"] = rng.integers(0, 40, 400) * 8 + vectors["h"] // 2 - 8
        vectors["motion_x"], vectors["motion_y"], vectors["motion_scale"] = (
            rng.integers(-90, 90, 400),
            rng.integers(-90, 90, 400),
            4,
        )
        frames.append(vectors)
    found = MotionMap(525, 299)
    for vectors in frames:
        found.add(vectors)
    expected = twin(frames, 299, 525)
    assert (found.motion().global_mean, found.motion().per_patch_min_256) == pytest.approx(expected, rel=1e-9)
    info = check_if_small_motion(frames, (299, 525, 3))
    assert (info.global_mean, info.is_small_motion) == (found.motion().global_mean, False)
    flow = motion_vectors_to_flowfield(frames[0], (299, 525))
    assert flow.shape == (299, 525, 2)
    assert float(np.hypot(flow[..., 0], flow[..., 1]).mean() / (299 + 525)) == pytest.approx(
        twin(frames[:1], 299, 525)[0], rel=1e-5
    )


def test_what_moves_and_what_does_not(videos: dict[str, str]) -> None:
    def of(name: str) -> Any:
        facts = read_facts(videos[name])
        return measure_motion(videos[name], facts.codec, facts.fps, 0.0, facts.duration_s)

    assert of("pan").global_mean > 0.002
    assert of("pan").per_patch_min_256 > 0.001
    assert of("pan vp9").global_mean == pytest.approx(of("pan mpeg4").global_mean, rel=0.3)  # by way of a small copy
    assert of("still").global_mean < 1e-5
    assert (of("small").global_mean, of("small").error) == (-1.0, TOO_SMALL)
    assert of("keyframes").global_mean > 0.002  # every sampled frame is a keyframe: the next one serves
    assert n_examined_frames(100.0, 2.0, 0.5) == 100


def test_the_functions_of_the_original(videos: dict[str, str]) -> None:
    decoded = decode_for_motion(videos["pan"])
    assert decoded.frame_size == (300, 528)
    assert decoded.get_major_size() > 0
    info = check_if_small_motion(decoded.frames, (*decoded.frame_size, 3))
    assert not info.is_small_motion
    assert check_if_small_motion(decode_for_motion(videos["still"]).frames, (300, 528, 3)).is_small_motion
    with pytest.raises(VideoResolutionTooSmallError, match="64 x 48"):
        decode_for_motion(videos["small"])
    with pytest.raises(UsageError, match="use_gpu"):
        check_if_small_motion([], (300, 528, 3), use_gpu=True)
