"""The motion filter in a pipeline: what does not move goes, with the value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.errors import UsageError
from tamis.observe.thumbnails.clips import clip_sheets
from tamis.observe.thumbnails.sheet import markup
from tamis.stages.video.clipping.clip_extraction_stages import FixedStrideExtractorStage
from tamis.stages.video.filtering.motion_filter import MotionFilterStage, MotionVectorDecodeStage
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader
from tamis.tasks import Video, VideoTask
from tests.support.run_dirs import run_dir_path
from tests.support.sample_videos import library, make_video

library()
_NOISE = np.repeat(np.repeat(np.random.default_rng(0).integers(0, 255, (80, 160, 3), np.uint8), 4, 0), 4, 1)


def half_still(i: int, width: int, height: int) -> np.ndarray[Any, Any]:
    """One second that moves, and one that does not."""
    return np.roll(_NOISE, 3 * min(i, 24), 1)[:height, :width]


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    make_video(folder / "a.mp4", 48, size=(320, 272), draw=half_still)
    return folder


def test_the_still_half_is_dropped_with_its_value(video: Path, tmp_path: Path) -> None:
    stages = [FixedStrideExtractorStage(1.0, 1.0, 0.5, 0), MotionVectorDecodeStage(), MotionFilterStage()]
    writer = ClipWriterStage(str(tmp_path / "out"), str(video), True, False, False, False, False)
    made = Pipeline("motion", stages=[VideoReader(str(video)), *stages, writer])
    result = made.execute(InProcessExecutor(), keep_rejected=True)
    book = result.ledger.stages[2]
    assert (book.into.n, book.out.n, {k: v.n for k, v in book.dropped.items()}) == (
        2,
        1,
        {"motion_filter: global mean": 1},
    )
    (row,) = [r for p in (tmp_path / "out").glob("*.parquet") for r in pq.read_table(p).to_pylist()]
    assert row["start_s"] == 0.0
    assert row["motion_score_global_mean"] > 0.00098
    assert len(list((tmp_path / "out/clips").iterdir())) == 1
    kept, dropped = clip_sheets(run_dir_path(tmp_path / "out"))
    assert (kept["rule"], dropped["rule"]) == ("", "motion_filter: global mean")
    assert [p["size"] for p in (*kept["images"], *dropped["images"])] == ["0.0 to 1.0 s", "1.0 to 2.0 s"]
    assert all(p["jpeg"].startswith("/9j/") for p in (*kept["images"], *dropped["images"]))
    assert "Dropped by motion_filter: global mean" in markup([kept, dropped])
    plan = run_dir_path(tmp_path / "out") / "plan.json"
    told = json.loads(plan.read_text())
    told["inputs"]["paths"] = ["/elsewhere.mp4"]  # rows may name any file: only videos of the run are opened
    plan.write_text(json.dumps(told))
    assert [p["jpeg"] for s in clip_sheets(run_dir_path(tmp_path / "out")) for p in s["images"]] in ([], ["", ""])


def test_by_hand(video: Path) -> None:
    task: Any = VideoTask("d", Video(video / "a.mp4"))
    for stage in (FixedStrideExtractorStage(1.0, 1.0, 0.5, 0), MotionVectorDecodeStage(target_fps=4.0)):
        task = stage.process(task)
    assert [c.motion_score_global_mean > 0.00098 for c in task.data.clips] == [True, False]
    task = MotionFilterStage(score_only=True).process(task)
    assert len(task.data.clips) == 2
    task = MotionFilterStage().process(task)
    assert (len(task.data.clips), len(task.data.filtered_clips), task.data.clip_stats.num_filtered_by_motion) == (
        1,
        1,
        1,
    )


def test_mistakes_are_reported() -> None:
    with pytest.raises(UsageError, match="num_gpus_per_worker"):
        MotionFilterStage(num_gpus_per_worker=1)
    with pytest.raises(UsageError, match="target_fps"):
        MotionVectorDecodeStage(target_fps=0)
