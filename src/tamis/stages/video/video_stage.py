"""Base classes of video stages: a row is a video or, after a splitter, a clip.

A VideoTask is taken as rows and filled from them again.
"""

from __future__ import annotations

import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from tamis._lazy import np, pa
from tamis.errors import TamisError, UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch, Task
from tamis.tasks.video import Clip, Video, VideoMetadata, VideoTask
from tamis.video.opening import VideoFault

T = TypeVar("T")
VIDEO_FIELDS = {  # column of a video's row -> its name in VideoMetadata
    "size_bytes": "size",
    "height": "height",
    "width": "width",
    "fps": "framerate",
    "n_frames": "num_frames",
    "duration_s": "duration",
    "codec": "video_codec",
    "pixel_format": "pixel_format",
    "audio_codec": "audio_codec",
    "bit_rate_k": "bit_rate_k",
}
CLIP_FIELDS = {
    "motion_score_global_mean": "motion_score_global_mean",
    "motion_score_per_patch_min_256": "motion_score_per_patch_min_256",
    "aesthetic_score": "aesthetic_score",
    "cosmos_embed1_embedding": "cosmos_embed1_embedding",
}
SPAN = ("path", "start_s", "end_s")  # columns that say which part of which video a clip is
_TYPES = {
    "width": "int32", "height": "int32", "size_bytes": "int64", "n_frames": "int64", "bit_rate_k": "int64",
    "duration_s": "float64", "fps": "float64", "pixel_aspect": "float64", "start_s": "float64", "end_s": "float64",
    "first_frame": "int64", "end_frame": "int64", "is_variable_rate": "bool", "path": "large_string",
    "codec": "large_string", "pixel_format": "large_string", "audio_codec": "large_string", "id": "large_string",
}  # fmt: skip


class VideoStage(ProcessingStage[Task[Any], Task[Any]]):
    """A stage over videos or clips. Subclasses have `process_rows`; `verbose` logs to stderr."""

    verbose: bool = False
    columns_in: ClassVar[Sequence[str] | None] = SPAN

    @abstractmethod
    def process_rows(self, batch: DocumentBatch) -> DocumentBatch | list[DocumentBatch] | None:
        """Return the rows that remain; report dropped ones with `_note_drops`."""

    def process(self, task: Task[Any]) -> Any:
        if isinstance(task, VideoTask):
            return self._by_hand(task)
        if not isinstance(task, DocumentBatch):
            raise UsageError(
                f"{self.name} takes videos or clips (DocumentBatch or VideoTask), got {type(task).__name__}"
            )
        return self.process_rows(task)

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    def _by_hand(self, task: VideoTask) -> VideoTask:
        """Run the stage over the rows of one video.

        Dropped clips go to filtered_clips, or to the video's errors.
        """
        self._open_notes()
        batch = rows_of(task)
        result = self.process_rows(batch)
        reported = self._take_notes()
        parts = result if isinstance(result, list) else [] if result is None else [result]
        notes = {int(s): (note.reason, str(note.threshold)) for note in reported.drops for s in note.serials}
        notes |= {
            int(s): ("damaged", why)
            for serials, reasons in reported.bad
            for s, why in zip(serials, reasons, strict=True)
        }
        fill(task.data, parts, notes)
        return task

    def _of_each(
        self, batch: DocumentBatch, columns: Iterable[Iterable[Any]], work: Callable[..., T]
    ) -> tuple[DocumentBatch, list[T]]:
        """Call `work` with the values of these columns of every row; return the results and the rows without a fault.

        The others go to quarantine.
        """
        results: list[T | VideoFault] = []
        for values in zip(*columns, strict=True):
            try:
                results.append(work(*values))
            except VideoFault as exc:
                results.append(exc)
        return good_rows(self, batch, results)


class NetworkStage(VideoStage):
    """A stage with a network: fetched and looked at once per machine.

    Without a GPU also loaded there, so that workers share its pages.
    """

    loaded: ClassVar[tuple[str, ...]] = ("_model",)  # what `_load` makes, None until then; it never leaves its process

    @abstractmethod
    def _fetch(self) -> object:
        """Ensure that everything to be loaded later is on this machine, and report faults in it."""

    @abstractmethod
    def _load(self) -> None: ...

    def _weight_bytes(self) -> int:
        """Return the bytes of the weights if they are on this machine. Must not fetch anything; may fail."""
        return 0

    def least_bytes(self) -> int:
        if self.resources.requires_gpu:
            return 0
        try:
            return self._weight_bytes()
        except (TamisError, OSError):  # reported at setup
            return 0

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        self._fetch()
        if not self.resources.requires_gpu:
            self.setup()

    def setup(self, worker_metadata: Any = None) -> None:
        if getattr(self, self.loaded[0]) is None:
            self._load()

    def teardown(self) -> None:
        self.__dict__.update(dict.fromkeys(self.loaded))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(self.loaded)}


def own_cpus(given: float, default: float, usual: float = 1.0) -> Resources:
    """Return what one worker takes: `usual` cores as far as this machine has them, or what the user asked for.

    Usually one core, because videos are decoded in one thread and several are processed at once.
    """
    if given != default:
        return Resources(cpus=float(given))
    return Resources(cpus=min(usual, float(len(os.sched_getaffinity(0)))))


def only_default(stage: str, **given: tuple[Any, Any]) -> None:
    """Refuse settings (name = (given, default)) that belong to decoders and encoders which are not used here."""
    for name, (value, default) in given.items():
        if value != default:
            raise UsageError(f"{stage}: {name}={value!r} has no meaning here: {_WHY[name]}; leave it out")


_WHY = {
    "pyncv_batch_size": "frames are decoded one by one, with PyAV",
    "encode_batch_size": "clips are encoded one by one",
    "use_hwaccel": "videos are decoded on the CPU",
    "ray_data_num_cpus": "what a worker takes is its resources",
}


def good_rows(
    stage: VideoStage, batch: DocumentBatch, results: Sequence[T | VideoFault]
) -> tuple[DocumentBatch, list[T]]:
    """Return the rows with a result, and the results; rows with a fault are quarantined."""
    is_good = np.array([not isinstance(one, VideoFault) for one in results], bool)
    bad = np.flatnonzero(~is_good)
    stage._note_bad(batch.serial[bad], [str(results[i]) for i in bad.tolist()])
    return batch.filter(is_good), [one for one in results if not isinstance(one, VideoFault)]


# -- by hand ----------------------------------------------------------------------------------------------------------
def rows_of(task: VideoTask) -> DocumentBatch:
    """Return a video as the row that a reader creates for it, or its clips as rows."""
    from tamis.formats.table_block import TableBlock

    video = task.data
    if not video.row and not video.has_metadata():
        video.populate_metadata()
    row = {"path": video.input_path, **{c: getattr(video.metadata, n) for c, n in VIDEO_FIELDS.items()}, **video.row}
    is_split = video.num_total_clips > 0 or bool(video.clips)
    rows = [{**row, **_clip_row(c)} for c in video.clips] if is_split else [row]
    table = _table(rows, row)
    return DocumentBatch.over(TableBlock(table), np.arange(table.num_rows), task.dataset_name)


def _clip_row(clip: Clip) -> dict[str, Any]:
    own = {c: getattr(clip, n) for c, n in CLIP_FIELDS.items() if getattr(clip, n) is not None}
    return {
        **clip.row,
        "id": str(clip.uuid),
        "path": clip.source_video,
        "start_s": clip.span[0],
        "end_s": clip.span[1],
        **own,
    }


def _table(rows: list[dict[str, Any]], video: dict[str, Any]) -> pa.Table:
    names = list(dict.fromkeys(n for row in rows for n in row)) or list(video)
    return pa.table(
        {n: pa.array([r.get(n) for r in rows], pa.type_for_alias(_TYPES[n]) if n in _TYPES else None) for n in names}
    )


def fill(video: Video, parts: list[DocumentBatch], notes: dict[int, tuple[str, str]]) -> None:
    """Put the rows that a stage returned into the video they belong to."""
    rows = [(int(s), row) for part in parts for s, row in zip(part.serial, plain_rows(part), strict=True)]
    is_split = bool(rows) and rows[0][1].get("start_s") is not None
    if not is_split and not video.clips:
        for _, row in rows:
            video.row = row
            video.metadata = VideoMetadata(**{n: row.get(c) for c, n in VIDEO_FIELDS.items()})
        video.errors.update(notes.values())
        return
    before = video.clips
    video.clips = [clip_of(row, before[s] if s < len(before) else None) for s, row in rows]
    video.num_total_clips = video.num_total_clips or len(video.clips)
    video.num_clip_chunks = video.num_clip_chunks or 1
    survivors = {s for s, _ in rows}
    for s, clip in enumerate(before):
        if s not in survivors:
            _drop_clip(video, clip, notes.get(s))


def _drop_clip(video: Video, clip: Clip, note: tuple[str, str] | None) -> None:
    """Move a clip to the filtered ones, with the reason and its details in `note`."""
    if note is not None:
        reason, why = note
        clip.errors[reason] = why
        video.clip_stats.num_filtered_by_motion += reason.startswith("motion")
        video.clip_stats.num_filtered_by_aesthetic += "aesthetic" in reason
    video.filtered_clips.append(clip)


def clip_of(row: dict[str, Any], before: Clip | None) -> Clip:
    clip = before or Clip(UUID(row["id"]), row["path"], (row["start_s"], row["end_s"]))
    for column, name in CLIP_FIELDS.items():
        if row.get(column) is not None:
            setattr(clip, name, row[column])
    clip.row = row
    return clip


def plain_rows(batch: DocumentBatch) -> list[dict[str, Any]]:
    names = batch.get_columns()
    columns = [batch.values(name) for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
