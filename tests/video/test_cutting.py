"""Parts of videos: copied as they are, or encoded anew."""

from __future__ import annotations

import hashlib
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tamis.errors import UsageError
from tamis.video import memory_needed
from tamis.video.cutting import copy_cut
from tamis.video.decoding import Frames, frames_at
from tamis.video.encoding import Encoding, available, check_encoder, choose_encoder, encode_span, encoding_need
from tamis.video.facts import read_facts
from tamis.video.opening import VideoFault
from tests.support.sample_videos import library, make_video

library()


def frames(path: str, start_s: float = 0.0, end_s: float = 1e9) -> list[tuple[float, np.ndarray[Any, Any]]]:
    return [(at, frame.to_ndarray(format="gray")) for at, frame in Frames(path, start_s, end_s)]


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mp4", "libx264"), ("a.mkv", "libx264"), ("a.webm", "libvpx-vp9"), ("a.avi", "mpeg4")]
)
def test_a_copy_shows_the_very_frames_of_its_span(name: str, codec: str, tmp_path: Path) -> None:
    video = make_video(tmp_path / name, 96, codec)
    whole = frames(video)
    for start_s, end_s in ((0.0, 1.0), (1.3, 2.6), (3.0, 4.0)):
        clip = str(tmp_path / "clip.mp4")
        n_packets = copy_cut(video, start_s, end_s, clip, "mp4")
        got, wanted = frames(clip), [p for at, p in whole if start_s - 1e-3 <= at < end_s - 1e-3]
        assert len(wanted) <= len(got) <= len(wanted) + 2  # as many as the codec reorders
        assert n_packets >= len(wanted)
        assert got[0][0] == pytest.approx(0.0, abs=0.05)
        assert all(np.array_equal(a, b) for (_, a), b in zip(got, wanted, strict=False))


def test_sound_turn_and_shape_of_pixels_come_along(tmp_path: Path) -> None:
    video = make_video(tmp_path / "a.mp4", 72, audio=True, rotation=90, aspect=Fraction(4, 3))
    made = {"copy": str(tmp_path / "copy.mp4"), "libx264": str(tmp_path / "x264.mp4")}
    copy_cut(video, 0.5, 2.0, made["copy"], "mp4")
    assert encode_span(video, 0.5, 2.0, made["libx264"], "mp4", Encoding("libx264")) == 36
    for clip in made.values():
        facts = read_facts(clip)
        assert facts.audio_codec == "aac"
        assert facts.pixel_aspect == pytest.approx(4 / 3)
        assert facts.duration_s == pytest.approx(1.5, abs=0.2)
        assert next(iter(Frames(clip)))[1].rotation == next(iter(Frames(video)))[1].rotation != 0


def test_every_encoder_here_gives_the_same_bytes_each_time(tmp_path: Path) -> None:
    video = make_video(tmp_path / "a.mp4", 24)
    assert "libx264" in available()
    for encoder in available():
        digests = set()
        for i in range(2):
            clip = str(tmp_path / f"{encoder}-{i}.mp4")
            assert encode_span(video, 0.25, 0.75, clip, "mp4", Encoding(encoder)) == 12
            assert read_facts(clip).n_frames == 12
            digests.add(hashlib.sha256(Path(clip).read_bytes()).hexdigest())
        assert len(digests) == 1, encoder
    assert Encoding("libvpx-vp9").extension("h264", "aac") == "mp4"
    assert Encoding().extension("vp8", "vorbis") == "mkv"


def test_ten_bits_odd_sides_and_times_that_vary_are_encoded(tmp_path: Path) -> None:
    video = make_video(
        tmp_path / "a.mkv", 24, "libx265", (66, 50), pixels="yuv420p10le", times=lambda i: 30 * i + (i % 3) * 8
    )
    clip = str(tmp_path / "clip.mp4")
    assert encode_span(video, 0.0, 10.0, clip, "mp4", Encoding("libx264", bit_rate_k=100)) == 24
    facts = read_facts(clip)
    assert (facts.width, facts.height, facts.pixel_format, facts.is_variable_rate) == (66, 50, "yuv420p", True)


def test_an_encoder_that_is_not_here_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no encoder 'libx999'; there are copy, libx264"):
        check_encoder("libx999")
    if "h264_nvenc" not in available():
        with pytest.raises(UsageError, match="h264_nvenc cannot be used here"):
            check_encoder("h264_nvenc")
        encoder, why = choose_encoder("h264_nvenc")
        assert (encoder, why[:31]) == ("libx264", "h264_nvenc cannot be opened her")
    check_encoder("copy")
    assert choose_encoder("libx264") == ("libx264", "")


def test_memory_is_reserved_before_anything_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = make_video(tmp_path / "a.mp4", 5)
    asked: list[int] = []

    def full(n_bytes: int, what: str) -> None:
        asked.append(n_bytes)
        raise MemoryError(f"malloc of size {n_bytes} would fail: {what}")

    monkeypatch.setattr(memory_needed, "reserve", full)
    with pytest.raises(MemoryError, match="encoding 64 x 48 with libx264"):
        encode_span(video, 0, 1, str(tmp_path / "x.mp4"), "mp4", Encoding("libx264"))
    with pytest.raises(MemoryError, match="decoding 64 x 48"):
        frames(video)
    assert (
        asked[0]
        == encoding_need(Encoding("libx264"), 64, 48, "yuv420p")
        > asked[1]
        == memory_needed.decoding_bytes(64, 48, "yuv420p")
    )
    assert 580e6 < encoding_need(Encoding("libx264"), 3840, 2160) < 700e6


def test_a_reservation_knows_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.memory.meter.data_limit", lambda: 10**9)
    monkeypatch.setattr("tamis.memory.meter.data_bytes", lambda: 9 * 10**8)
    memory_needed.reserve(10**8, "little")
    with pytest.raises(
        MemoryError, match="malloc of size 100000001 would fail: much takes that much, and 100000000 bytes are free"
    ):
        memory_needed.reserve(10**8 + 1, "much")
    monkeypatch.setattr("tamis.memory.meter.data_limit", lambda: None)
    memory_needed.reserve(10**15, "anything")


def test_damage_in_the_middle_is_counted_and_reported(tmp_path: Path) -> None:
    video = make_video(
        tmp_path / "a.mkv", 96, draw=lambda i, w, h: np.random.default_rng(i).integers(0, 255, (h, w, 3), np.uint8)
    )
    data = bytearray(Path(video).read_bytes())
    for at in range(len(data) // 2, len(data) // 2 + 9000):
        data[at] ^= 0x5A
    Path(video).write_bytes(bytes(data))
    frames = Frames(video)
    assert 0 < sum(1 for _ in frames) <= 96
    if frames.n_bad:
        with pytest.raises(VideoFault, match="cannot be decoded"):
            encode_span(video, 0, 10, str(tmp_path / "x.mp4"), "mp4", Encoding("mpeg4"))


def test_the_nearest_frames(tmp_path: Path) -> None:
    video = make_video(tmp_path / "a.mp4", 24, fps=10)
    whole = [p for _, p in frames(video)]
    got = {i: f.to_ndarray(format="gray") for i, f in frames_at(video, [0.0, 0.14, 0.16, 1.0, 99.0])}
    assert [int(np.argmax([np.array_equal(got[i], p) for p in whole])) for i in range(5)] == [0, 1, 2, 10, 23]
    assert list(frames_at(video, [])) == []


def test_no_encoder_makes_this_process_real_time(tmp_path: Path) -> None:
    """SVT-AV1 does, where it may: what we start would inherit it and take the machine from everybody else."""

    def policies() -> set[int]:
        return {os.sched_getscheduler(int(task)) for task in os.listdir("/proc/self/task")}

    before = policies()
    there = available()
    assert policies() == before
    video = make_video(tmp_path / "a.mp4", 24)
    frames = encode_span(
        video, 0.0, 0.5, str(tmp_path / "c.mkv"), "mkv", Encoding("libsvtav1" if "libsvtav1" in there else "mpeg4")
    )
    assert frames == 12
    assert policies() == before
