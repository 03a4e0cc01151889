"""A stage of one's own over VideoTask, in a run."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline, ProcessingStage
from tamis.errors import TamisError, UsageError
from tamis.stages.video.clipping.clip_extraction_stages import FixedStrideExtractorStage
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader
from tamis.stages.video.own_stage import OnVideoTasks
from tamis.tasks import Clip, DocumentBatch, VideoTask
from tests.support.sample_videos import library, make_video

library()


class EarlyClips(ProcessingStage[VideoTask, VideoTask]):
    """Keeps what begins in the first two seconds, and scores it."""

    name = "early clips"

    def process(self, task: VideoTask) -> VideoTask:
        assert task.data.metadata.num_frames == 72
        task.data.clips = [c for c in task.data.clips if c.span[0] < 2.0]
        for clip in task.data.clips:
            clip.aesthetic_score = clip.span[0] + 0.5
            clip.row["mood"] = "calm"
        return task


class Adds(ProcessingStage[VideoTask, VideoTask]):
    name = "adds"

    def process(self, task: VideoTask) -> VideoTask:
        import uuid

        task.data.clips.append(Clip(uuid.uuid4(), "elsewhere", (0.0, 1.0)))
        return task


class Embeds(ProcessingStage[VideoTask, VideoTask]):
    """Sets vectors as models give them, on all clips but one."""

    name = "embeds"

    def process(self, task: VideoTask) -> VideoTask:
        for i, clip in enumerate(task.data.clips):
            clip.cosmos_embed1_embedding = np.array([i, 0.5], np.float32) if i != 1 else None
            clip.aesthetic_score = np.float32(i)  # type: ignore[assignment]
            clip.row["sizes"] = [np.array([[i, 1]]), i]
        return task


class Splits(ProcessingStage[VideoTask, VideoTask]):
    name = "splits"

    def process(self, task: VideoTask) -> VideoTask:
        task.data.clips = [Clip(UUID(int=1), task.data.input_path, (0.0, 1.0))]
        return task


def clips(n: int) -> DocumentBatch:
    rows = [{"path": "a.mp4", "id": str(UUID(int=i)), "start_s": float(i), "end_s": i + 1.0} for i in range(n)]
    return DocumentBatch(data=pa.Table.from_pylist(rows))


def test_what_numpy_holds_becomes_columns() -> None:
    done = OnVideoTasks(Embeds()).process(clips(3))
    assert done.values("cosmos_embed1_embedding") == [[0.0, 0.5], None, [2.0, 0.5]]
    assert done.column("cosmos_embed1_embedding").type == pa.list_(pa.float32())
    assert done.values("aesthetic_score") == [0.0, 1.0, 2.0]
    assert done.values("sizes") == [[[[0, 1]], 0], [[[1, 1]], 1], [[[2, 1]], 2]]
    again = OnVideoTasks(Embeds()).process(done)
    assert again.values("cosmos_embed1_embedding") == [[0.0, 0.5], None, [2.0, 0.5]]


def test_clips_of_a_video_that_is_not_split_are_refused() -> None:
    video = DocumentBatch(data=pa.table({"path": ["a.mp4"], "fps": [24.0]}))
    with pytest.raises(
        UsageError, match=r"splits: it made 1 clips of a\.mp4, which is not split yet; put a stage that splits"
    ):
        OnVideoTasks(Splits()).process(video)


def test_a_clip_given_as_bytes_reports_what_it_is(tmp_path: Path) -> None:
    data = Path(make_video(tmp_path / "a.mp4", 24)).read_bytes()
    clip = Clip(UUID(int=1), "a.mp4", (0.0, 1.0))
    assert clip.extract_metadata() is None
    clip.buffer = data
    told = clip.extract_metadata()
    assert told == {
        "width": 64,
        "height": 48,
        "framerate": 24.0,
        "num_frames": 24,
        "video_codec": "h264",
        "num_bytes": len(data),
    }


def run(videos: Path, out: Path, stage: ProcessingStage[VideoTask, VideoTask]) -> Pipeline:
    writer = ClipWriterStage(str(out), str(videos), True, False, False, False, False)
    return Pipeline(
        "own",
        stages=[VideoReader(str(videos)), FixedStrideExtractorStage(1.0, 1.0, 0.5, 0), OnVideoTasks(stage), writer],
    )


def test_clips_and_scores_of_a_stage_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    make_video(tmp_path / "videos/a.mp4", 72)
    result = run(tmp_path / "videos", tmp_path / "out", EarlyClips()).execute(InProcessExecutor())
    rows = sorted(
        (r for p in (tmp_path / "out").glob("*.parquet") for r in pq.read_table(p).to_pylist()),
        key=lambda r: r["start_s"],
    )
    assert [(r["start_s"], r["aesthetic_score"], r["mood"]) for r in rows] == [(0.0, 0.5, "calm"), (1.0, 1.5, "calm")]
    assert {k: v.n for k, v in result.ledger.stages[1].dropped.items()} == {"early clips": 1}
    with pytest.raises(TamisError):
        run(tmp_path / "videos", tmp_path / "other", Adds()).run(InProcessExecutor(), progress=False)
