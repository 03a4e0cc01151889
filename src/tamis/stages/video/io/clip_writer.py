"""ClipWriterStage: clips as files, and a table of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import check_choice
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.text.io.writer import ParquetWriter
from tamis.stages.text.io.writer.files import output_path
from tamis.stages.video.io.clip_files import ClipFilesStage
from tamis.stores.run_locations import local_output_dir
from tamis.tasks import DocumentBatch, FileGroupTask, Task

_EMBEDDINGS = ("cosmos-embed1", "cosmos-embed1-224p", "cosmos-embed1-336p", "cosmos-embed1-448p")


def _inside(name: str) -> staticmethod[[str], str]:
    """Return a static method that returns the path of `name` below the output folder."""
    return staticmethod(lambda output_path: os.path.join(output_path, name))


@dataclass(repr=False)
class ClipWriterStage(CompositeStage[DocumentBatch, FileGroupTask]):
    """Writes clips, their metadata, and a table of all clips.

    Each clip is written to `output_path`/clips/ID.mp4 (.mkv for codecs that MP4 does not support), its metadata to
    metas/v0/ID.json; the Parquet table has every column: scores, captions, embeddings, and the paths of the files.

    `input_path`: the folder of the videos, by which their summaries in processed_videos/ are named. `upload_clips`:
    False writes everything but the clips themselves; `dry_run` writes the table only. `generate_embeddings`,
    `generate_previews`, `generate_captions`: these must have been made by stages before, and are written
    (ce1_embd_parquet/, previews/, as windows in the JSON, where they are called after the first of `caption_models` and
    `enhanced_caption_models`). `max_workers`: threads that wait for the disk. `log_stats`, `verbose`: say how many were
    written.
    """

    output_path: str
    input_path: str
    upload_clips: bool
    dry_run: bool
    generate_embeddings: bool
    generate_previews: bool
    generate_captions: bool
    embedding_algorithm: str = "cosmos-embed1"
    caption_models: Sequence[str] | None = None
    enhanced_caption_models: Sequence[str] | None = None
    verbose: bool = False
    max_workers: int = 6
    log_stats: bool = False
    name: str = "clip_writer"

    def __post_init__(self) -> None:
        super().__init__()
        check_choice(f"{self.name}: embedding_algorithm", self.embedding_algorithm, _EMBEDDINGS)
        self.output_path = output_path(self.name, self.output_path)
        self.decompose()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [self._files(), ParquetWriter(self.output_path, name=self.name)]

    def _files(self) -> ClipFilesStage:
        outputs = {
            "embeddings": self.generate_embeddings,
            "previews": self.generate_previews,
            "captions": self.generate_captions,
        }
        return ClipFilesStage(
            self.output_path,
            self.input_path,
            self.upload_clips,
            self.dry_run,
            self.max_workers,
            self.verbose,
            self.log_stats,
            tuple(name for name, is_wanted in outputs.items() if is_wanted),
            *(
                f"{models[0]}_{what}" if models else what
                for models, what in (
                    (self.caption_models, "caption"),
                    (self.enhanced_caption_models, "enhanced_caption"),
                )
            ),
        )

    def inputs(self) -> Any:
        return ["data"], self._files().input_columns()

    def outputs(self) -> Any:
        return ["data"], self._files().output_columns()

    def setup(self, worker_metadata: Any = None) -> None:
        """Create the folder, for use outside of a run."""
        os.makedirs(local_output_dir(self.output_path), exist_ok=True)

    def process(self, task: Task[Any]) -> Any:
        """Write the files of some clips, outside of a run; only a run writes the table."""
        return self._files().process(task)

    @staticmethod
    def calculate_sha256(buffer: bytes) -> str:
        return hashlib.sha256(buffer).hexdigest()

    # -- where things are ---------------------------------------------------------------------------------------------
    get_output_path_previews = _inside("previews")
    get_output_path_ce1_embd = _inside("ce1_embd")
    get_output_path_ce1_embd_parquet = _inside("ce1_embd_parquet")
    get_output_path_processed_videos = _inside("processed_videos")
    get_output_path_processed_clip_chunks = _inside("processed_clip_chunks")

    @staticmethod
    def get_output_path_clips(output_path: str, *, filtered: bool = False) -> str:
        return os.path.join(output_path, "filtered_clips" if filtered else "clips")

    @staticmethod
    def get_output_path_metas(output_path: str, version: str) -> str:
        return os.path.join(output_path, "metas", version)
