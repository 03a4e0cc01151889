"""Motion vectors of a span: those of its codec, or of a small MPEG-4 copy.

Codecs that expose none (VP8, VP9, HEVC, AV1) are encoded and decoded again in memory, frame by frame. Only one frame's
vectors are held at a time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from tamis.video.decoding import Frames
from tamis.video.motion import NO_VECTORS, PATCH, TOO_SMALL, Motion, MotionMap, n_examined_frames
from tamis.video.opening import VideoFault, library

TELL_VECTORS = ("h264", "mpeg4", "mpeg2video", "mpeg1video")
_SHORT_SIDE = 272  # of the small copy: one patch of 256 fits, and MPEG-4 wants multiples of 16


def measure_motion(
    path: str, codec: str, fps: float, start_s: float, end_s: float, target_fps: float = 2.0, share: float = 0.5
) -> Motion:
    """Measure the motion of a span, from `target_fps` frames a second.

    Stops after as many frames as a `share` of the span has at that rate.
    """
    n_frames = n_examined_frames(end_s - start_s, target_fps, share)
    motion: MotionMap | None = None
    for width, height, vectors in sampled_vectors(path, codec, fps, start_s, end_s, target_fps):
        if motion is None:
            if min(width, height) < PATCH:
                return Motion(error=TOO_SMALL)
            motion = MotionMap(width, height)
        if vectors is not None:
            motion.add(vectors)
            if motion.n_frames >= n_frames:
                break
    return motion.motion() if motion is not None and motion.n_frames else Motion(error=NO_VECTORS)


def sampled_vectors(
    path: str, codec: str, fps: float, start_s: float, end_s: float, target_fps: float
) -> Iterator[tuple[int, int, Any]]:
    """Yield (width, height, vectors or None) of frames of a span, about `target_fps` a second of them with vectors.

    VideoFault where no frame can be decoded.
    """
    step = max(1, round(fps / target_fps))
    frames = Frames(path, start_s, end_s, vectors=codec in TELL_VECTORS)
    due = 0
    with _frozen_objects():
        for i, (width, height, vectors) in enumerate(
            _frame_vectors(frames) if codec in TELL_VECTORS else _of_a_copy(frames, fps)
        ):
            if i >= due:
                # A keyframe has none: then the next frame that has some serves, so that a video with a keyframe at
                # every step is not called still.
                motion_vectors = vectors()
                due = (i // step + 1) * step if motion_vectors is not None else due
                yield width, height, motion_vectors
    if not frames.n_frames:
        raise VideoFault(frames.fault or f"no frame can be decoded from {start_s:.2f} s on")


@contextmanager
def _frozen_objects() -> Iterator[None]:
    """Exclude existing objects from garbage collection inside this block.

    A collection (`_vectors`) takes time in proportion to the number of objects: with torch loaded a quarter of a
    second, for each frame. In a worker they are excluded from its start.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _frame_vectors(frames: Frames) -> Iterator[tuple[int, int, Any]]:
    for _, frame in frames:
        yield frame.width, frame.height, lambda frame=frame: _vectors(frame)


def _vectors(frame: Any) -> Any:
    """Return the motion vectors of a frame, or None if it has none."""
    side = frame.side_data.get("MOTION_VECTORS")
    motion_vectors = None if side is None else side.to_ndarray().copy()
    # A frame and its side data refer to each other; without this a video's worth of them stays until Python happens to
    # look (570 MB).
    del side
    gc.collect()
    return motion_vectors if motion_vectors is not None and len(motion_vectors) else None


def _of_a_copy(frames: Frames, fps: float) -> Iterator[tuple[int, int, Any]]:
    av = library()
    encoder: Any = None
    decoder: Any = None
    for i, (_, frame) in enumerate(frames):
        if encoder is None:
            if min(frame.width, frame.height) < PATCH:
                yield frame.width, frame.height, lambda: None
                return
            encoder, decoder = _small_codec(av, frame, fps)
        small = frame.reformat(width=encoder.width, height=encoder.height, format="yuv420p")
        small.pts, small.time_base, small.pict_type = i, encoder.time_base, 0
        for packet in encoder.encode(small):
            for shown in decoder.decode(packet):
                yield shown.width, shown.height, lambda shown=shown: _vectors(shown)
    if decoder is not None:
        for shown in decoder.decode(None):
            yield shown.width, shown.height, lambda shown=shown: _vectors(shown)


def _small_codec(av: Any, frame: Any, fps: float) -> tuple[Any, Any]:
    scale = _SHORT_SIDE / min(frame.width, frame.height)
    encoder = av.CodecContext.create("mpeg4", "w")
    encoder.width, encoder.height = (max(PATCH, round(side * scale / 16) * 16) for side in (frame.width, frame.height))
    encoder.pix_fmt, encoder.gop_size, encoder.thread_count = "yuv420p", 600, 1
    encoder.time_base = Fraction(1, max(1, round(fps)))
    encoder.options = {"q:v": "5"}
    encoder.open()
    decoder = av.CodecContext.create("mpeg4", "r")
    decoder.thread_count = 1
    decoder.flags2 |= av.codec.context.Flags2.export_mvs
    decoder.extradata = encoder.extradata
    return encoder, decoder
