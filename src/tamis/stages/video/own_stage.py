"""OnVideoTasks: a stage of one's own that takes and returns VideoTask, in a run, where videos and clips are rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.video.video_stage import CLIP_FIELDS, VIDEO_FIELDS, VideoStage, clip_of, plain_rows
from tamis.tasks import DocumentBatch
from tamis.tasks.video import Video, VideoMetadata, VideoTask


@dataclass(repr=False)
class OnVideoTasks(VideoStage):
    """Calls `stage` with one VideoTask per video, with its remaining clips, and makes rows of the result.

    Clips that it takes out of `clips` are dropped under its name. What it sets on a clip (aesthetic_score, motion
    scores, embedding, and all keys of `clip.row`) becomes columns. It may neither add clips nor return other
    videos.
    """

    stage: ProcessingStage[Any, Any]
    name: str = ""
    columns_in = ("path",)

    def __post_init__(self) -> None:
        self.name = self.name or self.stage.name
        self.resources = self.stage.resources

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        self.stage.setup_on_node(node_info, worker_metadata)

    def setup(self, worker_metadata: Any = None) -> None:
        self.stage.setup(worker_metadata)

    def teardown(self) -> None:
        self.stage.teardown()

    def process_rows(self, batch: DocumentBatch) -> DocumentBatch:
        rows = plain_rows(batch)
        by_video: dict[str, list[int]] = {}
        for i, row in enumerate(rows):
            by_video.setdefault(row["path"], []).append(i)
        rows_by_position: dict[int, dict[str, Any]] = {}
        for path, at in by_video.items():
            task = self._task(batch.dataset_name, path, [rows[i] for i in at])
            returned = self.stage.process(task)
            if returned is not None:
                rows_by_position |= self._rows(returned, at, rows)
        indices = sorted(rows_by_position)
        result = batch.take(np.array(indices, np.int64))
        names = dict.fromkeys(n for row in rows_by_position.values() for n in row)
        for name in names:
            values = [rows_by_position[i].get(name) for i in indices]
            if list(map(_plain, values)) != [rows[i].get(name) for i in indices]:
                result = result.with_column(name, _column(values))
        return result

    def _task(self, dataset_name: str, path: str, rows: list[dict[str, Any]]) -> VideoTask:
        first = rows[0]
        video = Video(
            path, metadata=VideoMetadata(**{n: first.get(c) for c, n in VIDEO_FIELDS.items()}), row=dict(first)
        )
        if first.get("start_s") is not None:
            video.clips = [clip_of(dict(row), None) for row in rows]
            video.num_total_clips, video.num_clip_chunks = len(rows), 1
        return VideoTask(dataset_name, video)

    def _rows(self, task: Any, at: list[int], rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Return the rows that came back, by their row number."""
        if not isinstance(task, VideoTask):
            raise UsageError(f"{self.name}: expected a VideoTask back, got {type(task).__name__}")
        if rows[at[0]].get("start_s") is None:
            if task.data.clips:
                raise UsageError(
                    f"{self.name}: it made {len(task.data.clips)} clips of {task.data.input_path}, which is not split "
                    "yet; put a stage that "
                    "splits videos (FixedStrideExtractorStage, TransNetV2ClipExtractionStage) before it, and choose "
                    "among their clips"
                )
            return {at[0]: dict(task.data.row)}
        row_of = {rows[i]["id"]: i for i in at}
        results = {}
        for clip in task.data.clips:
            if str(clip.uuid) not in row_of:
                raise UsageError(f"{self.name}: the clip {clip.uuid} was not among those it was given")
            fields = {c: getattr(clip, n) for c, n in CLIP_FIELDS.items() if getattr(clip, n) is not None}
            results[row_of[str(clip.uuid)]] = {**clip.row, **fields}
        return results


def _plain(value: Any) -> Any:
    """Convert numpy or torch values to Python values; return anything else unchanged."""
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _column(values: list[Any]) -> Any:
    """Return vectors in their own precision if all are numpy's; others as Python has them."""
    if all(v is None or (isinstance(v, np.ndarray) and v.ndim == 1) for v in values):
        return pa.array(values)
    return list(map(_plain, values))
