"""The helpers for videos that users of the original import."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from tamis.errors import FormatError, UsageError
from tamis.utils import decoder_utils as decode
from tamis.utils import windowing_utils as windows
from tests.support.sample_videos import library, make_video

library()


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_video(tmp_path_factory.mktemp("video") / "a.mp4", 24, fps=12)


def test_what_a_video_reports_by_path_bytes_and_stream(video: str) -> None:
    data = Path(video).read_bytes()
    stream = io.BytesIO(data)
    for source in (video, Path(video), data, stream):
        told = decode.extract_video_metadata(source)
        assert (told.height, told.width, told.num_frames, told.video_codec, told.video_duration) == (
            48,
            64,
            24,
            "h264",
            2.0,
        )
    assert stream.tell() == 0
    assert decode.get_frame_count(data) == 24
    assert decode.get_avg_frame_rate(video) == 12.0
    assert decode.get_video_timestamps(video) == pytest.approx(np.arange(24) / 12)
    with pytest.raises(FormatError):
        decode.extract_video_metadata(b"no video")


def test_frames_by_number_rate_and_policy(video: str) -> None:
    whole = decode.decode_video_cpu_frame_ids(video, list(range(24)))
    assert whole.shape == (24, 48, 64, 3)
    assert np.array_equal(decode.decode_video_cpu_frame_ids(video, [3, 5], [2, 1]), whole[[3, 3, 5]])
    assert np.array_equal(decode.decode_video_cpu(video, 2.0, endpoint=False), whole[[0, 6, 12, 18]])
    for policy, at in (("first", 0), ("middle", 12), ("last", 23)):
        assert np.array_equal(decode.extract_frames(video, decode.FrameExtractionPolicy[policy]), whole[[at]])
    assert decode.extract_frames(video, decode.FrameExtractionPolicy.sequence, 4.0, (10, 20)).shape[1:] == (10, 20, 3)
    assert (
        decode.FrameExtractionSignature(decode.FrameExtractionPolicy.sequence, 2).to_str()
        == "FrameExtractionPolicy.sequence-2000"
    )
    with pytest.raises(UsageError, match="no frame 99"):
        decode.decode_video_cpu_frame_ids(video, [99])


def test_windows(video: str) -> None:
    frames, counts = windows.fetch_video(
        video, window_range=windows.compute_windows(24, 12, 6), preprocess_dtype="uint8"
    )
    assert counts == [4, 4]
    assert frames.shape[:2] == (8, 3)
    assert frames.shape[2] % 28 == frames.shape[3] % 28 == 0
    turned, _ = windows.fetch_video(
        video, window_range=windows.compute_windows(24, 12, 6), preprocess_dtype="uint8", flip_input=True
    )
    assert np.array_equal(turned[:, :, ::-1, ::-1], frames)
    with pytest.raises(UsageError, match="preprocess_dtype"):
        windows.fetch_video(video, preprocess_dtype="int4")
