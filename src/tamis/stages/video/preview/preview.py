"""PreviewStage: a small animated preview of each clip, for people who look through them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tamis._lazy import pa
from tamis.errors import UsageError
from tamis.stages.video.video_stage import SPAN, VideoStage, own_cpus
from tamis.stores.urls import path_of
from tamis.tasks import DocumentBatch
from tamis.video.previews import preview

PREVIEW = "preview"


@dataclass(repr=False)
class PreviewStage(VideoStage):
    """Adds preview: an animated WebP of `target_fps` frames a second, `target_height` high (never enlarged).

    ClipWriterStage with generate_previews writes it to previews/. `quality` is 0 to 100, `compression_level` 0 (fast)
    to 6 (small).
    """

    target_fps: float = 1.0
    target_height: int = 240
    verbose: bool = False
    num_cpus_per_worker: float = 4.0
    compression_level: int = 6
    quality: int = 50
    name: str = field(default="preview", kw_only=True)
    columns_in = (*SPAN, "pixel_aspect")
    columns_out = (PREVIEW,)

    def __post_init__(self) -> None:
        if not self.target_fps > 0 or self.target_height < 2:
            raise UsageError(f"{self.name}: target_fps must be above 0 and target_height at least 2")
        if not 0 <= self.compression_level <= 6 or not 0 <= self.quality <= 100:
            raise UsageError(f"{self.name}: compression_level must be 0 to 6 and quality 0 to 100")
        self.resources = own_cpus(self.num_cpus_per_worker, 4.0)

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        def made_of(path: str, start: float, end: float, aspect: float | None) -> bytes:
            how = (self.target_fps, self.target_height, self.quality, self.compression_level)
            return preview(path_of(path), start, end, *how, aspect or 1.0)

        batch, previews = self._of_each(batch, (batch.values(c) for c in (*SPAN, "pixel_aspect")), made_of)
        self._say(f"{len(previews)} previews, {sum(map(len, previews))} bytes")
        return batch.with_column(PREVIEW, pa.array(previews, pa.large_binary()))
