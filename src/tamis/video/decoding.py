"""Frames of a video, or of a span of it, one by one. At any time only what the decoder itself keeps is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tamis.video import memory_needed
from tamis.video.opening import CLOSE_S, VideoFault, faults, ffmpeg_message, library, opened, seek, video_stream

_BEFORE_S = 1.0  # the nearest frame may be before its time, but hardly by more


class Frames:
    """Iterates (seconds since the video's first frame, frame) over a span.

    Packets that cannot be decoded are skipped and counted.

    `n_bad`, `fault`: how many, and FFmpeg's message of the first; valid after the last frame. `vectors`: have
    H.264, MPEG-4 and MPEG-2 give their motion vectors as side data.
    """

    def __init__(
        self, path: str | bytes, start_s: float = 0.0, end_s: float = float("inf"), vectors: bool = False
    ) -> None:
        self.path, self.start_s, self.end_s = path, start_s, end_s
        self.vectors = vectors
        self.n_bad, self.fault = 0, ""
        self.n_frames = 0

    def __iter__(self) -> Iterator[tuple[float, Any]]:
        av = library()
        with opened(self.path) as container:
            stream = video_stream(container)
            context = stream.codec_context
            context.thread_count = 1
            context.thread_type = "SLICE"
            if self.vectors:
                context.flags2 |= av.codec.context.Flags2.export_mvs
            memory_needed.reserve_decoder(context, f"decoding {context.width} x {context.height}")
            base, tick = stream.start_time or 0, float(stream.time_base)
            seek(container, stream, self.start_s)
            start, end = self.start_s - CLOSE_S, self.end_s - CLOSE_S
            for packet in self._packets(av, container, stream):
                for frame in self._decoded(av, packet):
                    if frame.pts is None:
                        continue
                    at = (frame.pts - base) * tick
                    if at >= end:
                        return
                    if at >= start:
                        if frame.is_corrupt:
                            self.n_bad, self.fault = self.n_bad + 1, self.fault or "a frame is damaged"
                        self.n_frames += 1
                        yield at, frame

    def _packets(self, av: Any, container: Any, stream: Any) -> Iterator[Any]:
        with faults(av, "its packets cannot be read"):
            yield from container.demux(stream)

    def _decoded(self, av: Any, packet: Any) -> Sequence[Any]:
        try:
            return list(packet.decode())
        except (MemoryError, OSError):
            raise
        except av.error.EOFError:  # the decoder was asked for more after its end
            return []
        except av.error.FFmpegError as exc:
            self.n_bad += 1
            self.fault = self.fault or ffmpeg_message(exc)
            return []


def frames_at(path: str, times_s: Sequence[float]) -> Iterator[tuple[int, Any]]:
    """Yield (index into `times_s`, frame) for the frame nearest to each of these times, which ascend.

    The earlier of two that are as near.

    One frame may serve several times. VideoFault where none can be decoded.
    """
    if not times_s:
        return
    frames = Frames(path, max(0.0, times_s[0] - _BEFORE_S))
    position, last, last_s = 0, None, 0.0
    for seen_s, frame in frames:
        while position < len(times_s) and times_s[position] <= seen_s:
            is_last = last is not None and times_s[position] - last_s <= seen_s - times_s[position]
            yield position, last if is_last else frame
            position += 1
        if position == len(times_s):
            return
        last, last_s = frame, seen_s
    if last is None:
        raise VideoFault(
            f"no frame can be decoded from {times_s[0]:.2f} s on" + (f": {frames.fault}" if frames.fault else "")
        )
    while position < len(times_s):  # after the last frame
        yield position, last
        position += 1


def check_shows(path: str) -> None:
    """Raise VideoFault if the first frame of a video cannot be decoded."""
    frames = Frames(path)
    if next(iter(frames), None) is None:
        raise VideoFault("none of its frames can be decoded" + (f": {frames.fault}" if frames.fault else ""))


def first_keyframe(path: str, at_s: float) -> Any:
    """Return the keyframe at or before a time, alone. Raise VideoFault if it cannot be decoded."""
    av = library()
    with opened(path) as container:
        stream = video_stream(container)
        stream.codec_context.thread_count = 1
        stream.codec_context.skip_frame = "NONKEY"
        memory_needed.reserve_decoder(stream.codec_context, "a thumbnail")
        seek(container, stream, at_s)
        with faults(av, "its packets cannot be decoded"):
            for packet in container.demux(stream):
                for frame in packet.decode():
                    return frame
    raise VideoFault(f"no frame can be decoded near {at_s:.2f} s")
