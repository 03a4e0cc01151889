"""Videos and clips as objects: their paths and metadata, never their bytes or frames.

In a run videos and clips are rows of batches (DocumentBatch): one row per video when it is read, one per clip once it
is split. These classes are for use by hand: every video stage takes a VideoTask, too (stages/video/video_stage.py
converts).
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import Any
from uuid import UUID

from tamis import _satellites
from tamis._dataclasses import dataclass
from tamis.tasks.tasks import Task


@dataclass
class VideoMetadata:
    """The metadata of a video file; None: not read yet."""

    size: int | None = None
    height: int | None = None
    width: int | None = None
    framerate: float | None = None
    num_frames: int | None = None
    duration: float | None = None
    video_codec: str | None = None
    pixel_format: str | None = None
    audio_codec: str | None = None
    bit_rate_k: int | None = None


@dataclass
class Clip:
    """A part of a video: `span` in seconds.

    Stages decode its frames from the video as needed, so `buffer` and the frames stay empty unless a user fills them.
    """

    uuid: UUID
    source_video: str
    span: tuple[float, float]
    buffer: bytes | None = None
    extracted_frames: dict[str, Any] = field(default_factory=dict)
    decoded_motion_data: Any = None
    motion_score_global_mean: float | None = None
    motion_score_per_patch_min_256: float | None = None
    aesthetic_score: float | None = None
    cosmos_embed1_frames: Any = None
    cosmos_embed1_embedding: Any = None
    windows: list[Any] = field(default_factory=list)
    egomotion: dict[str, bytes] = field(default_factory=dict)
    cosmos_embed1_text_match: tuple[str, float] | None = None
    errors: dict[str, str] = field(default_factory=dict)
    # Columns of its row that have no place above, so that the way through a stage and back loses nothing.
    row: dict[str, Any] = field(default_factory=dict, kw_only=True, repr=False)

    @property
    def duration(self) -> float:
        return self.span[1] - self.span[0]

    def extract_metadata(self) -> dict[str, Any] | None:
        """Return the metadata of a clip that was written or given as bytes; None for any other.

        Keys: width, height, framerate, num_frames, video_codec, num_bytes.
        """
        video = self.buffer if self.buffer is not None else self.row.get("clip_path")
        if video is None:
            return None
        facts = _satellites.load("video.read_facts")(video if isinstance(video, bytes) else str(video))
        return {
            "width": facts.width,
            "height": facts.height,
            "framerate": facts.fps,
            "num_frames": facts.n_frames,
            "video_codec": facts.codec,
            "num_bytes": facts.size_bytes,
        }

    def get_major_size(self) -> int:
        """Return the bytes of its buffers and frames."""
        frames = sum(int(getattr(f, "nbytes", 0)) for f in self.extracted_frames.values())
        return len(self.buffer or b"") + frames + int(getattr(self.cosmos_embed1_frames, "nbytes", 0))


@dataclass
class ClipStats:
    """Numbers of clips of a video, by what became of them."""

    num_filtered_by_motion: int = 0
    num_filtered_by_aesthetic: int = 0
    num_passed: int = 0
    num_transcoded: int = 0
    num_with_embeddings: int = 0
    num_with_caption: int = 0
    num_with_webp: int = 0
    total_clip_duration: float = 0.0
    max_clip_duration: float = 0.0

    def combine(self, other: ClipStats) -> None:
        """Add the numbers of another part of the same video."""
        longest = max(self.max_clip_duration, other.max_clip_duration)
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.max_clip_duration = longest


@dataclass
class Video:
    """A video by its path. `source_bytes` and `frame_array` stay empty."""

    input_video: str | os.PathLike[str] = ""
    source_bytes: bytes | None = None
    metadata: VideoMetadata = field(default_factory=VideoMetadata)
    frame_array: Any = None
    clips: list[Clip] = field(default_factory=list)
    filtered_clips: list[Clip] = field(default_factory=list)
    num_total_clips: int = 0
    num_clip_chunks: int = 0
    clip_chunk_index: int = 0
    clip_stats: ClipStats = field(default_factory=ClipStats)
    errors: dict[str, str] = field(default_factory=dict)
    row: dict[str, Any] = field(default_factory=dict, kw_only=True, repr=False)  # as in Clip

    @property
    def input_path(self) -> str:
        return os.fspath(self.input_video)

    @property
    def fraction(self) -> float:
        """The share of the video's clips that this object holds."""
        total = self.num_total_clips or len(self.clips) + len(self.filtered_clips)
        return (len(self.clips) + len(self.filtered_clips)) / total if total else 1.0

    @property
    def weight(self) -> float:
        """The amount of work relative to a video of five minutes."""
        return (self.metadata.duration or 0.0) / 300.0 * self.fraction

    def has_metadata(self) -> bool:
        metadata = self.metadata
        return all(
            v is not None
            for v in (
                metadata.height,
                metadata.width,
                metadata.duration,
                metadata.framerate,
                metadata.num_frames,
                metadata.video_codec,
            )
        )

    def is_10_bit_color(self) -> bool | None:
        """Return True if the pixel format is 10-bit; None if unknown."""
        pixel_format = self.metadata.pixel_format
        return None if pixel_format is None else "10le" in pixel_format or "10be" in pixel_format

    def populate_metadata(self) -> None:
        """Read the metadata from the file; raise VideoFault if it is not a video."""
        facts = _satellites.load("video.read_facts")(self.input_path)
        self.metadata = VideoMetadata(
            facts.size_bytes,
            facts.height,
            facts.width,
            facts.fps,
            facts.n_frames,
            facts.duration_s,
            facts.codec,
            facts.pixel_format,
            facts.audio_codec,
            facts.bit_rate_k,
        )

    def get_major_size(self) -> int:
        return len(self.source_bytes or b"") + sum(c.get_major_size() for c in (*self.clips, *self.filtered_clips))


@dataclass
class VideoTask(Task[Video]):
    """One video, with its clips once it is split."""

    data: Video = field(default_factory=Video)

    @property
    def num_items(self) -> int:
        return 1

    def validate(self) -> bool:
        """Return True if the video exists."""
        return os.path.exists(self.data.input_path)
