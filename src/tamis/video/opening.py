"""Opening of videos with PyAV: the only module that imports it, and detects and names unusable files.

A file is untrusted: only containers of video are tried, whatever it is called, and nothing but the file itself
is opened (a playlist with the name of a video would otherwise send FFmpeg to other files and addresses).
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from tamis.errors import FormatError, optional
from tamis.stores.spool import local_or_open

SUFFIXES = (".mp4", ".mov", ".avi", ".mkv", ".webm")
_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"
CLOSE_S = 1e-4  # times nearer than this are one: containers round them
_OPTIONS = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "file"}


class VideoFault(FormatError):
    """A video, or a part of one, that cannot be decoded; the message says why."""


def library() -> Any:
    """Import PyAV; raise MissingExtra if it is not installed."""
    av = optional("av", "video", "video")
    av.logging.set_level(None)  # FFmpeg's own words: what matters is raised
    os.environ.setdefault("SVT_LOG", "1")  # errors only, of a verbose encoder
    return av


@contextmanager
def opened(path: str | bytes) -> Iterator[Any]:
    """Open the container of a video (a local or remote path, or its bytes), and close it at the end.

    Raise VideoFault if the file is not a video. A lack of memory remains a MemoryError.
    """
    av = library()
    with nullcontext(io.BytesIO(path)) if isinstance(path, bytes) else local_or_open(path) as source:
        with faults(av, "no video that can be opened"):
            container = av.open(source, options=dict(_OPTIONS), **_of_titles(av))
        try:
            yield container
        finally:
            container.close()


def _of_titles(av: Any) -> dict[str, str]:
    """Ignore titles that are not UTF-8: an option up to PyAV 18, and always so since."""
    return {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}


@contextmanager
def faults(av: Any, what: str) -> Iterator[None]:
    """Raise FFmpeg's errors about data as VideoFault; those of the machine (memory, disk, permission) unchanged."""
    try:
        yield
    except (MemoryError, OSError):
        raise
    except (av.error.FFmpegError, av.codec.codec.UnknownCodecError) as exc:
        raise VideoFault(f"{what}: {ffmpeg_message(exc)}") from exc


def ffmpeg_message(exc: BaseException) -> str:
    """Return FFmpeg's own words, without the path and the number around them."""
    return str(getattr(exc, "strerror", None) or exc)


def video_stream(container: Any) -> Any:
    """Return the first video stream of a container; a cover image does not count.

    Raise VideoFault if there is none.
    """
    for stream in container.streams.video:
        if not stream.disposition & stream.disposition.attached_pic:
            if stream.codec_context is None:
                raise VideoFault("its video codec is not supported")
            return stream
    raise VideoFault("it has no video stream")


def codec_name(context: Any) -> str:
    """Return the name of the codec, regardless of the decoder: av1, not libdav1d."""
    return str(context.codec.canonical_name)


def seek(container: Any, stream: Any, at_s: float) -> None:
    """Seek to the last keyframe at or before a time since the first frame.

    Where a container cannot, its beginning is as good, only slower.
    """
    av = library()
    try:
        container.seek(int(at_s / float(stream.time_base)) + (stream.start_time or 0), stream=stream, backward=True)
    except (av.error.FFmpegError, OSError):
        container.seek(0)
