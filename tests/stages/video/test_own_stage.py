"""A stage of one's own over VideoTask, in a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline, ProcessingStage
from tamis.errors import TamisError
from tamis.stages.video.clipping.clip_extraction_stages import FixedStrideExtractorStage
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader
from tamis.stages.video.own_stage import OnVideoTasks
from tamis.tasks import Clip, VideoTask

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from made_films import library, make_film

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


def run(films: Path, out: Path, stage: ProcessingStage[VideoTask, VideoTask]) -> Pipeline:
    writer = ClipWriterStage(str(out), str(films), True, False, False, False, False)
    return Pipeline(
        "own",
        stages=[VideoReader(str(films)), FixedStrideExtractorStage(1.0, 1.0, 0.5, 0), OnVideoTasks(stage), writer],
    )


def test_clips_and_scores_of_a_stage_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    make_film(tmp_path / "films/a.mp4", 72)
    result = run(tmp_path / "films", tmp_path / "out", EarlyClips()).execute(InProcessExecutor())
    rows = sorted(
        (r for p in (tmp_path / "out").glob("*.parquet") for r in pq.read_table(p).to_pylist()),
        key=lambda r: r["start_s"],
    )
    assert [(r["start_s"], r["aesthetic_score"], r["mood"]) for r in rows] == [(0.0, 0.5, "calm"), (1.0, 1.5, "calm")]
    assert {k: v.n for k, v in result.ledger.stages[1].dropped.items()} == {"early clips": 1}
    with pytest.raises(TamisError):
        run(tmp_path / "films", tmp_path / "other", Adds()).run(InProcessExecutor(), progress=False)
