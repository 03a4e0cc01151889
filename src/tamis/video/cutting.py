"""Parts of a video as files of their own, without decoding anything: packets are copied as they are.

A part begins at the keyframe at or before its start; in MP4 an edit list hides the lead, so that a player shows exactly
what was asked for. Packets are taken in the order of decoding up to the end: leaving out those that are shown later
would damage the frames that refer to them, so the tail may be a few frames longer (as many as the codec reorders).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from tamis.video.opening import CLOSE_S, faults, library, opened, seek, video_stream

_IN_MP4 = {"h264", "hevc", "mpeg4", "mpeg2video", "mpeg1video", "vp9", "av1", "mjpeg"}
_AUDIO_IN_MP4 = {"aac", "mp3", "mp2", "ac3", "eac3", "opus", "flac", "alac"}
COPY = "copy"


def container_of(codec: str, audio_codec: str | None) -> str:
    """Return the file extension for these codecs: mp4, or mkv for what MP4 does not support.

    >>> container_of("h264", "aac"), container_of("vp8", None), container_of("h264", "pcm_s16le")
    ('mp4', 'mkv', 'mkv')
    """
    fits = codec in _IN_MP4 and (audio_codec is None or audio_codec in _AUDIO_IN_MP4)
    return "mp4" if fits else "mkv"


def muxer_options(extension: str) -> dict[str, str]:
    """Return options of the muxer: MP4 keeps times below zero for its edit list, Matroska starts at zero."""
    return {"avoid_negative_ts": "disabled"} if extension == "mp4" else {}


def muxer_name(extension: str) -> str:
    return {"mp4": "mp4", "mkv": "matroska", "webm": "webm"}[extension]


def copy_cut(path: str, start_s: float, end_s: float, target: str, extension: str) -> int:
    """Write the packets of a span to `target`; returns the number of video packets.

    VideoFault where they cannot be read or written.
    """
    av = library()
    with opened(path) as source, faults(av, "its packets cannot be copied"):
        stream = video_stream(source)
        audio = next((a for a in source.streams.audio if a.codec_context is not None), None)
        # Matroska stores presentation times only; MP4 needs decoding times, too.
        decoded = decoding_times(source, stream, start_s, end_s) if "matroska" in source.format.name else None
        with av.open(target, "w", format=muxer_name(extension), options=muxer_options(extension)) as container:
            out = container.add_stream_from_template(stream)
            out_audio = container.add_stream_from_template(audio) if audio is not None else None
            zero = {stream.index: zero_of(start_s, stream)}
            if audio is not None:
                zero[audio.index] = zero_of(start_s, stream, audio)
            n = 0
            for packet in span_packets(source, stream, audio, start_s, end_s):
                is_video = bool(packet.stream_index == stream.index)
                if is_video and decoded is not None:
                    packet.dts = decoded[n]
                move(packet, zero[packet.stream_index])
                packet.stream = out if is_video else out_audio
                container.mux(packet)
                n += int(is_video)
            return n


def zero_of(start_s: float, stream: Any, of: Any = None) -> int:
    """Return the time that becomes the zero of a clip, in the unit of a stream.

    Frames shown before it belong to the lead.
    """
    start: Fraction = Fraction(stream.start_time or 0) * stream.time_base + Fraction(start_s - CLOSE_S)
    tick: Fraction = (of or stream).time_base
    return math.ceil(start / tick)


def decoding_times(source: Any, stream: Any, start_s: float, end_s: float) -> list[int]:
    """Return the decoding time of each packet of the span.

    These are the presentation times in order, shifted so that no frame is shown before it is decoded.
    """
    pts = [p.pts if p.pts is not None else p.dts for p in span_packets(source, stream, None, start_s, end_s)]
    in_order = sorted(pts)
    delay = max(0, *(decoded - shown for decoded, shown in zip(in_order, pts, strict=True)), 0)
    return [at - delay for at in in_order]


def span_packets(source: Any, stream: Any, audio: Any, start_s: float, end_s: float) -> Iterator[Any]:
    """Yield packets of the video from the keyframe at or before the start to the end, and of the audio inside."""
    tick, base = float(stream.time_base), stream.start_time or 0
    zero_s, end = base * tick, base + (end_s - CLOSE_S) / tick
    seek(source, stream, start_s + CLOSE_S)
    streams = [stream] if audio is None else [stream, audio]
    is_through = dict.fromkeys((s.index for s in streams), False)
    has_begun = False
    for packet in source.demux(*streams):
        if not _has_data_and_time(packet):
            continue
        if packet.stream_index == stream.index:
            if packet.dts is not None and packet.dts >= end:
                is_through[stream.index] = True
            elif has_begun or packet.is_keyframe:
                has_begun = True
                yield packet
        elif packet.pts is not None:
            at_s = float(packet.pts * packet.time_base) - zero_s
            if at_s >= end_s - CLOSE_S:
                is_through[audio.index] = True
            elif at_s >= start_s - CLOSE_S:
                yield packet
        if all(is_through.values()):
            return


def _has_data_and_time(packet: Any) -> bool:
    return packet.size > 0 and (packet.dts is not None or packet.pts is not None)


def move(packet: Any, zero: int) -> None:
    """Make `zero` the zero of a packet's times."""
    if packet.dts is not None:
        packet.dts -= zero
    if packet.pts is not None:
        packet.pts -= zero
