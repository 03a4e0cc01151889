"""What a video tells before it is decoded, and which files are none."""

from __future__ import annotations

import importlib
from fractions import Fraction
from pathlib import Path

import pytest

from tamis.errors import MissingExtra
from tamis.video import opening
from tamis.video.facts import MAX_PIXELS, read_facts
from tamis.video.opening import VideoFault
from tests.support.sample_videos import library, make_video, truncated

library()


@pytest.mark.parametrize(
    ("name", "codec", "codec_name"),
    [
        ("a.mp4", "libx264", "h264"),
        ("a.mkv", "libx264", "h264"),
        ("a.webm", "libvpx-vp9", "vp9"),
        ("a.avi", "mpeg4", "mpeg4"),
        ("a.mov", "mpeg4", "mpeg4"),
    ],
)
def test_every_container_reports_the_same(name: str, codec: str, codec_name: str, tmp_path: Path) -> None:
    facts = read_facts(make_video(tmp_path / name, 48, codec))
    assert (facts.n_frames, facts.width, facts.height, facts.codec, facts.audio_codec) == (48, 64, 48, codec_name, None)
    assert facts.fps == pytest.approx(24.0)
    assert facts.duration_s == pytest.approx(2.0, abs=0.002)
    assert not facts.is_variable_rate
    assert facts.size_bytes == (tmp_path / name).stat().st_size


def test_audio_pixel_aspect_and_a_rate_that_varies(tmp_path: Path) -> None:
    facts = read_facts(
        make_video(
            tmp_path / "v.mp4",
            24,
            audio=True,
            aspect=Fraction(4, 3),
            times=lambda i: 40 * i if i < 12 else 480 + 200 * (i - 12),
        )
    )
    assert facts.audio_codec == "aac"
    assert facts.pixel_aspect == pytest.approx(4 / 3)
    assert facts.is_variable_rate
    assert 2.6 < facts.duration_s < 3.2
    assert facts.fps == pytest.approx(24 / facts.duration_s, rel=0.01)


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mp4", "libx264"), ("a.mkv", "libx264"), ("a.webm", "libvpx-vp9"), ("a.avi", "mpeg4")]
)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_video_that_is_cut_short_is_reported(name: str, codec: str, share: float, tmp_path: Path) -> None:
    whole = make_video(tmp_path / f"whole-{name}", 96, codec)
    with pytest.raises(VideoFault, match=r"cut short|no video"):
        read_facts(truncated(whole, tmp_path / name, share))


def test_what_is_no_video(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("hello " * 1000)
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "list.mp4").write_text(
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n" + make_video(tmp_path / "a.mp4", 5)
    )
    for name in ("text.mp4", "empty.mp4", "list.mp4"):
        with pytest.raises(VideoFault, match="no video that can be opened"):
            read_facts(str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        read_facts(str(tmp_path / "absent.mp4"))


def test_sound_alone_and_frames_of_impossible_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    av = library()
    with av.open(str(tmp_path / "sound.mp4"), "w") as made:
        sound = made.add_stream("aac", rate=16000, layout="mono")
        made.mux(sound.encode(None))
        made.start_encoding()
    with pytest.raises(VideoFault, match=r"no video stream|no video"):
        read_facts(str(tmp_path / "sound.mp4"))
    video = make_video(tmp_path / "a.mp4", 5)
    monkeypatch.setattr("tamis.video.facts.MAX_PIXELS", 1000)
    with pytest.raises(VideoFault, match="claims frames of 64 x 48"):
        read_facts(video)
    assert MAX_PIXELS > 7680 * 4320


def test_impossible_times_and_shapes(tmp_path: Path) -> None:
    year_ms = 365 * 86_400_000
    video = make_video(tmp_path / "a.mkv", 3, times=lambda i: i * year_ms)
    with pytest.raises(VideoFault, match=r"its times claim \d+ days, more than 31"):
        read_facts(video)
    assert read_facts(make_video(tmp_path / "b.mp4", 5, aspect=Fraction(200, 1))).pixel_aspect == 1.0
    assert read_facts(make_video(tmp_path / "c.mp4", 5, aspect=Fraction(4, 3))).pixel_aspect == pytest.approx(4 / 3)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_av(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", no_av)
    with pytest.raises(MissingExtra, match=r"tamis\[video\]"):
        opening.library()
