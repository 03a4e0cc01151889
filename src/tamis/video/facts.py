"""Metadata of a video before decoding: one pass over its packets, which also detects truncation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis.stores.opening import size_of
from tamis.video.opening import VideoFault, codec_name, faults, library, opened, video_stream

MAX_PIXELS = 144_000_000  # of one frame: 16K. A header that claims more is a mistake, or wants the reader's memory
# Two frames can be 10^18 s apart by their times: clips of that would never be all counted.
MAX_DURATION_S = 31 * 86_400.0
# A pixel that is more oblong is a mistake; scaled to its true shape, a frame would take gigabytes.
_MOST_ASPECT = 20.0
_RATE_OF_UNKNOWN_K = 2000  # kbit/s, for files that do not say
_SHORT_S = 0.3  # a container whose last packet ends so much before the duration it states, and more than
_SHORT_SHARE = 0.02  # ... this share of it, is cut short


@dataclass(frozen=True)
class VideoFacts:
    """Facts about one video.

    Times are seconds since its first frame; width and height are those of the stored frame, before a player turns it.
    """

    size_bytes: int
    duration_s: float
    n_frames: int
    fps: float
    is_variable_rate: bool
    width: int
    height: int
    pixel_aspect: float
    codec: str
    pixel_format: str
    bit_rate_k: int
    audio_codec: str | None


class _Times:
    """Times of the packets of one stream, in its own unit: their extent, and whether they are evenly spaced."""

    def __init__(self) -> None:
        self.n, self.first, self.end = 0, 0, 0
        self._last_dts: int | None = None
        self._least, self._most = 1 << 62, 0

    def add(self, pts: int, dts: int | None, duration: int) -> None:
        self.first = pts if not self.n else min(self.first, pts)
        self.end = max(self.end, pts + duration) if self.n else pts + duration
        self.n += 1
        if dts is not None and self._last_dts is not None and dts > self._last_dts:
            self._least, self._most = min(self._least, dts - self._last_dts), max(self._most, dts - self._last_dts)
        self._last_dts = dts if dts is not None else self._last_dts

    @property
    def is_even(self) -> bool:
        """Containers round times to their unit: a distance may be one off."""
        return self._most <= self._least + 1 or self._most <= self._least * 1.05


def read_facts(path: str | bytes) -> VideoFacts:
    """Return the facts of a video without decoding anything.

    Raise VideoFault if the file is not a video, has no frames, is truncated or has damaged packets.
    """
    av = library()
    with opened(path) as container:
        stream = video_stream(container)
        context = stream.codec_context
        width, height = int(context.width), int(context.height)
        if width < 1 or height < 1:
            raise VideoFault("its header has no frame size")
        if width * height > MAX_PIXELS:
            raise VideoFault(f"its header claims frames of {width} x {height}, more than {MAX_PIXELS} pixels")
        times, end_s, n_packets, n_damaged = _Times(), 0.0, 0, 0
        with faults(av, "its packets cannot be read"):
            for packet in container.demux():
                if packet.size == 0:  # the end of a stream, and nothing in it
                    continue
                n_damaged += packet.is_corrupt
                n_packets += packet.stream_index == stream.index
                if packet.is_discard:  # hidden by an edit list: decoded, and never shown
                    continue
                if packet.pts is None:
                    if packet.stream_index == stream.index and packet.dts is not None:
                        times.add(packet.dts, packet.dts, packet.duration or 0)
                    continue
                end_s = max(end_s, float((packet.pts + (packet.duration or 0)) * packet.time_base))
                if packet.stream_index == stream.index:
                    times.add(packet.pts, packet.dts, packet.duration or 0)
        if not times.n:
            raise VideoFault("it has no frames")
        _check_whole(container, stream, n_packets, end_s, n_damaged)
        return _facts(path, container, stream, times)


def _check_whole(container: Any, stream: Any, n_frames: int, end_s: float, n_damaged: int) -> None:
    if stream.frames and n_frames < stream.frames:
        raise VideoFault(f"it is cut short: {n_frames} of {stream.frames} frames are there")
    if n_damaged:
        raise VideoFault(f"it is cut short or damaged: {n_damaged} packets are not whole")
    if container.duration:
        start_s = (container.start_time or 0) / 1e6
        declared_s = container.duration / 1e6
        if end_s - start_s < declared_s - max(_SHORT_S, declared_s * _SHORT_SHARE):
            raise VideoFault(f"it is cut short: it ends after {end_s - start_s:.1f} of {declared_s:.1f} s")


def _facts(path: str | bytes, container: Any, stream: Any, times: _Times) -> VideoFacts:
    context = stream.codec_context
    rate, duration_s = _rate_and_duration_s(stream, times)
    if not duration_s <= MAX_DURATION_S:
        raise VideoFault(f"its times claim {duration_s / 86_400:.0f} days, more than {MAX_DURATION_S / 86_400:.0f}")
    size = len(path) if isinstance(path, bytes) else size_of(path)
    audio = container.streams.audio
    bits = container.bit_rate or (int(size * 8 / duration_s) if duration_s > 0 else 0)
    return VideoFacts(
        size_bytes=size,
        duration_s=duration_s,
        n_frames=times.n,
        fps=rate,
        is_variable_rate=not times.is_even,
        width=int(context.width),
        height=int(context.height),
        pixel_aspect=_pixel_aspect(stream),
        codec=codec_name(context),
        pixel_format=str(context.pix_fmt or ""),
        bit_rate_k=bits // 1000 or _RATE_OF_UNKNOWN_K,
        audio_codec=codec_name(audio[0].codec_context) if audio and audio[0].codec_context is not None else None,
    )


def _rate_and_duration_s(stream: Any, times: _Times) -> tuple[float, float]:
    """Return frames per second and seconds; either is computed from the other if the container does not state it."""
    rate = float(stream.average_rate or stream.guessed_rate or 0)
    duration_s = float((times.end - times.first) * stream.time_base)
    if duration_s <= 0.0 or (times.n > 1 and times.end == times.first):
        duration_s = times.n / rate if rate else 0.0
    if times.n > 1 and duration_s > 0 and (not rate or not times.is_even):
        rate = times.n / duration_s
    if rate and duration_s < times.n / rate * 0.5:  # containers without durations of packets
        duration_s += 1 / rate
    return rate, duration_s


def _pixel_aspect(stream: Any) -> float:
    """Return width by height of a pixel; 1 if the header has none that can be true."""
    aspect = float(stream.sample_aspect_ratio or 0) or 1.0
    return aspect if 1 / _MOST_ASPECT <= aspect <= _MOST_ASPECT else 1.0
