"""Films into clips: the rows of a film, once per span, each with its own name and place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tamis.film.spans import Span, clip_id, frame_range

if TYPE_CHECKING:
    from tamis.tasks import DocumentBatch

CLIP_COLUMNS = ["id", "start_s", "end_s", "first_frame", "end_frame"]


def split_rows(batch: DocumentBatch, spans: Sequence[Sequence[Span]]) -> DocumentBatch:
    """One row per span of each film; a film without spans has none."""
    import numpy as np
    import pyarrow as pa

    at = np.repeat(np.arange(batch.num_items), [len(of) for of in spans])
    films = list(zip(batch.values("path"), batch.values("fps"), batch.values("n_frames"), strict=True))
    flat = [(films[i], span) for i, of in enumerate(spans) for span in of]
    frames = [frame_range(span, fps, n_frames) for (_, fps, n_frames), span in flat]
    columns: dict[str, Any] = {
        "id": pa.array([clip_id(film[0], f) for (film, _), f in zip(flat, frames, strict=True)], pa.large_string()),
        "start_s": pa.array([span[0] for _, span in flat], pa.float64()),
        "end_s": pa.array([span[1] for _, span in flat], pa.float64()),
        "first_frame": pa.array([f[0] for f in frames], pa.int64()),
        "end_frame": pa.array([f[1] for f in frames], pa.int64()),
    }
    clips = batch.take(at)
    for name, values in columns.items():
        clips = clips.with_column(name, values)
    return clips
