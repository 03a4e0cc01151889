"""Parts of a video encoded anew: decoded frame by frame, turned upright, and written with the audio as it was."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.video import memory_needed
from tamis.video.cutting import COPY, container_of, move, muxer_name, muxer_options, span_packets, zero_of
from tamis.video.decoding import Frames
from tamis.video.opening import VideoFault, faults, ffmpeg_message, library, opened, video_stream

_REAL_TIME = (os.SCHED_FIFO, os.SCHED_RR)
# Options are fixed, and one thread is the default, so that the same video gives the same bytes whatever machine and
# budget there are. x264's mbtree reads memory that it did not set (with small frames the bytes differed from one run to
# the next); it is off.
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "libx264": {"preset": "veryfast", "crf": "21", "x264-params": "mbtree=0:rc-lookahead=10:sync-lookahead=0"},
    "libx265": {"preset": "veryfast", "crf": "26", "x265-params": "log-level=none:pools=none:frame-threads=1"},
    "libvpx-vp9": {"crf": "31", "b": "0", "cpu-used": "4", "lag-in-frames": "12"},
    "libsvtav1": {"preset": "9", "crf": "35", "svtav1-params": "lp=1:lookahead=0"},
    "libaom-av1": {"cpu-used": "6", "crf": "35", "lag-in-frames": "12"},
    "mpeg4": {"q:v": "5"},
    "h264_nvenc": {"rc": "vbr", "cq": "21"},
}
_CODEC = {
    "libx264": "h264",
    "libx265": "hevc",
    "libvpx-vp9": "vp9",
    "libsvtav1": "av1",
    "libaom-av1": "av1",
    "mpeg4": "mpeg4",
    "h264_nvenc": "h264",
}
NVENC = "h264_nvenc"
_INSTEAD = "libx264"
_QUALITY = ("crf", "cq", "b", "q:v")  # options that a bit rate takes the place of


@dataclass(frozen=True)
class Encoding:
    """Settings of clip encoding: an encoder, or `copy` for unchanged packets."""

    encoder: str = COPY
    threads: int = 1
    bit_rate_k: int | None = None  # None: constant quality

    def extension(self, codec: str, audio_codec: str | None) -> str:
        """Return the file extension of a clip from a video with these codecs."""
        return container_of(codec if self.encoder == COPY else _CODEC[self.encoder], audio_codec)


def check_encoder(name: str, threads: int = 1) -> None:
    """Raise UsageError, naming the available encoders, if this machine cannot encode so.

    Opens the encoder: a GPU's may be listed and not be there.
    """
    if name == COPY:
        return
    if name not in _OPTIONS:
        raise UsageError(f"there is no encoder {name!r}; there are {', '.join((COPY, *available()))}")
    if (why := _missing(name, threads)) is not None:
        raise UsageError(f"the encoder {name} cannot be used here ({why}); there are {', '.join((COPY, *available()))}")


def choose_encoder(name: str, threads: int = 1) -> tuple[str, str]:
    """Return the encoder to use, and why it differs from `name` ("" if it does not).

    A GPU's encoder is used where there is one, else libx264, which makes the same kind of video; others are checked as
    they are named (UsageError).
    """
    if name != NVENC or (why := _missing(name, threads)) is None:
        check_encoder(name, threads)
        return name, ""
    check_encoder(_INSTEAD, threads)
    return _INSTEAD, f"{name} cannot be opened here ({why})"


def available() -> list[str]:
    return [name for name in _OPTIONS if _missing(name, 1) is None]


def _missing(name: str, threads: int) -> str | None:
    """Return why an encoder cannot be used, or None if it can."""
    av = library()
    try:
        context = _context(av.CodecContext.create(name, "w"), name, 256, 256, Fraction(1, 25), threads)
        with restored_scheduling():
            context.open()
    except (MemoryError, ValueError, OSError, av.error.FFmpegError) as exc:
        return ffmpeg_message(exc)
    return None


def _context(context: Any, name: str, width: int, height: int, tick: Fraction, threads: int) -> Any:
    context.width, context.height, context.pix_fmt = width, height, "yuv420p"
    context.time_base = tick
    context.options = dict(_OPTIONS[name])
    if name != NVENC:
        context.thread_count = threads
    return context


def encode_span(path: str, start_s: float, end_s: float, target: str, extension: str, how: Encoding) -> int:
    """Encode a span into `target`; returns the number of frames.

    VideoFault where it has none, or some that cannot be decoded.
    """
    av = library()
    frames = Frames(path, start_s, end_s)
    with opened(path) as source:
        stream = video_stream(source)
        _reserve(stream.codec_context, how)
        zero = zero_of(start_s, stream)
        with (
            faults(av, f"{how.encoder} failed"),
            av.open(target, "w", format=muxer_name(extension), options=muxer_options(extension)) as container,
        ):
            out: Any = None
            sound = _Sound(source, stream, container, start_s, end_s)
            for at_s, frame in frames:
                shown = _plain(frame)
                is_first = out is None
                if is_first:
                    out = _stream(container, how, shown, frame.rotation, stream)
                shown.pts, shown.time_base, shown.pict_type = frame.pts - zero, stream.time_base, 0
                with (
                    restored_scheduling() if is_first else contextlib.nullcontext()
                ):  # the first frame opens the encoder
                    packets = out.encode(shown)
                container.mux(packets)
                sound.copy_until(at_s)
            if out is None:
                raise VideoFault(frames.fault or f"no frame can be decoded from {start_s:.2f} s on")
            container.mux(out.encode(None))
            sound.copy_until(end_s)
    if frames.n_bad:
        raise VideoFault(
            f"{frames.n_bad} packets between {start_s:.2f} and {end_s:.2f} s cannot be decoded: {frames.fault}"
        )
    return frames.n_frames


def encoding_need(how: Encoding, width: int, height: int, pixel_format: str = "") -> int:
    """Return the bytes that writing a clip of such a video takes."""
    if how.encoder == COPY:
        return memory_needed.decoding_bytes(width, height, pixel_format)  # one frame of it is looked at
    return memory_needed.encoding_bytes(how.encoder, width, height) * max(
        1, how.threads
    ) + memory_needed.decoding_bytes(width, height, pixel_format)


def _reserve(context: Any, how: Encoding) -> None:
    need = encoding_need(how, context.width, context.height, context.pix_fmt or "")
    memory_needed.reserve(need, f"encoding {context.width} x {context.height} with {how.encoder}")


def _plain(frame: Any) -> Any:
    """Convert a frame to 8-bit 4:2:0 with even sides, which every encoder here accepts."""
    width, height = max(2, frame.width // 2 * 2), max(2, frame.height // 2 * 2)
    return frame.reformat(width=width, height=height, format="yuv420p")


def _stream(container: Any, how: Encoding, frame: Any, rotation: int, source: Any) -> Any:
    """Add the video stream of a clip, with the rotation and aspect ratio of the source video."""
    out = container.add_stream(how.encoder, rate=source.average_rate or 25)
    _context(out.codec_context, how.encoder, frame.width, frame.height, source.time_base, how.threads)
    if source.sample_aspect_ratio:
        out.codec_context.sample_aspect_ratio = source.sample_aspect_ratio
    if rotation:
        out.set_display_rotation(rotation)
    if how.bit_rate_k is not None:
        out.codec_context.bit_rate = how.bit_rate_k * 1000
        out.codec_context.options = {k: v for k, v in _OPTIONS[how.encoder].items() if k not in _QUALITY}
    return out


class _Sound:
    """Copies the audio of a span along with the video, packet by packet."""

    def __init__(self, source: Any, stream: Any, container: Any, start_s: float, end_s: float) -> None:
        self._container, self._index = container, stream.index
        audio = next((a for a in source.streams.audio if a.codec_context is not None), None)
        self._out = container.add_stream_from_template(audio) if audio is not None else None
        self._packets = iter(span_packets(source, stream, audio, start_s, end_s) if audio is not None else ())
        self._zero = zero_of(start_s, stream, audio) if audio is not None else 0
        self._next: Any = None

    def copy_until(self, at_s: float) -> None:
        while (packet := self._next or next(self._packets, None)) is not None:
            self._next = None
            if packet.stream_index == self._index:
                continue
            if float(packet.pts * packet.time_base) > at_s:
                self._next = packet
                return
            move(packet, self._zero)
            packet.stream = self._out
            self._container.mux(packet)


@contextmanager
def restored_scheduling() -> Iterator[None]:
    """Restore the scheduling policy of all threads of this process after an encoder was opened.

    SVT-AV1, where it may (root, and so in most containers), sets this process to SCHED_FIFO with the highest priority.
    Child processes inherit it, other processes on the machine starve, and the kernel can wait forever for a task that
    it never schedules.
    """
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        if policy & ~os.SCHED_RESET_ON_FORK not in _REAL_TIME:
            for task in os.listdir("/proc/self/task"):
                with contextlib.suppress(OSError):  # a thread that has just ended
                    if os.sched_getscheduler(int(task)) & ~os.SCHED_RESET_ON_FORK in _REAL_TIME:
                        os.sched_setscheduler(int(task), policy, priority)
