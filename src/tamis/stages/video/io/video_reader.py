"""VideoReader: videos as rows. Each has its location and metadata; nothing is decoded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np
from tamis.errors import UsageError
from tamis.formats.registry import load_table_format, suffixes
from tamis.sizes import check_optional_integer
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.io import Reader
from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask

FIELDS = [
    "path", "size_bytes", "duration_s", "n_frames", "fps", "is_variable_rate", "width", "height", "pixel_aspect",
    "codec", "pixel_format", "bit_rate_k", "audio_codec",
]  # fmt: skip


@dataclass(repr=False)
class VideoReaderStage(Reader):
    """Turns files of video into rows. `input_path`: the folder that relative names are in, outside of a run."""

    input_path: str | None = None
    verbose: bool = False
    name: str = "video_reader"
    formats: ClassVar[tuple[str, ...]] = ("video",)
    columns_in = ()
    columns_out = FIELDS

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Report what to install where PyAV is missing, before any video is called bad for it."""
        from tamis.video.opening import library

        library()

    def process(self, task: FileGroupTask) -> list[DocumentBatch]:
        """Read one batch per video, outside of a run; raise FormatError for a file that is none."""
        from tamis.formats.table_block import TableBlock

        batches = []
        for path in task.data:
            inside = os.path.join(self.input_path, path) if self.input_path else path
            for _, table in load_table_format("video").iter_rows(inside, 0, 1):
                batches.append(DocumentBatch.over(TableBlock(table), np.arange(1), task.dataset_name))
        return batches


@dataclass(repr=False)
class VideoReader(CompositeStage[EmptyTask, DocumentBatch]):
    """Read videos (.mp4 .mov .avi .mkv .webm): a folder, a glob, a file or a list of these.

    The first `video_limit` of them.

    Each video is a row with path, size_bytes, duration_s, n_frames, fps, is_variable_rate, width, height, pixel_aspect,
    codec, pixel_format, bit_rate_k and audio_codec. Files that are no video, have no frames or are truncated go to
    quarantine.
    """

    input_video_path: str | Sequence[str]
    video_limit: int | None = None
    verbose: bool = False
    name: str = "video_reader"

    def __post_init__(self) -> None:
        super().__init__()
        check_optional_integer(self.video_limit, f"{self.name}: video_limit", -1)
        if self.video_limit == -1:
            self.video_limit = None  # all of them
        self.decompose()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if not self.input_video_path:
            raise UsageError(
                f"{self.name}: input_video_path is empty; give a folder, a glob, a file or a list of these"
            )
        # One video a partition: that is what a kill or a bad video costs.
        files = FilePartitioningStage(
            self.input_video_path, files_per_partition=1, file_extensions=suffixes("video"), limit=self.video_limit
        )
        return [files, VideoReaderStage(verbose=self.verbose)]

    def get_description(self) -> str:
        return f"Reads videos of {self.input_video_path}, one row each"
