"""Videos into clips: the rows of a video, once per span, each with its own name and place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, pa
from tamis.video.spans import Span, clip_ids, frame_range

if TYPE_CHECKING:
    from tamis.tasks import DocumentBatch

CLIP_COLUMNS = ["id", "start_s", "end_s", "first_frame", "end_frame"]


def split_rows(batch: DocumentBatch, spans: Sequence[Sequence[Span]]) -> DocumentBatch:
    """Return one row per span of each video; a video without spans has none."""
    at = np.repeat(np.arange(batch.num_items), [len(of) for of in spans])
    videos = list(zip(batch.values("path"), batch.values("fps"), batch.values("n_frames"), strict=True))
    flat = [span for of in spans for span in of]
    ranges = [
        [frame_range(span, fps, n_frames) for span in of] for (_, fps, n_frames), of in zip(videos, spans, strict=True)
    ]
    ids = [
        name
        for video, of, frames_of in zip(videos, spans, ranges, strict=True)
        for name in clip_ids(video[0], of, frames_of)
    ]
    frames = [f for of in ranges for f in of]
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.large_string()),
        "start_s": pa.array([span[0] for span in flat], pa.float64()),
        "end_s": pa.array([span[1] for span in flat], pa.float64()),
        "first_frame": pa.array([f[0] for f in frames], pa.int64()),
        "end_frame": pa.array([f[1] for f in frames], pa.int64()),
    }
    clips = batch.take(at)
    for name, values in columns.items():
        clips = clips.with_column(name, values)
    return clips
