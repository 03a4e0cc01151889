"""Videos into clips from end to end: in Python, from the command line, with bad videos among good ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.cli.main import app
from tamis.errors import UsageError
from tamis.stages.video.clipping.clip_extraction_stages import ClipTranscodingStage, FixedStrideExtractorStage
from tamis.stages.video.io import clip_files
from tamis.stages.video.io.clip_files import ClipFilesStage
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader, VideoReaderStage
from tamis.tasks import DocumentBatch, FileGroupTask, Video, VideoTask
from tamis.video.facts import read_facts
from tamis.video.spans import clip_id, fixed_spans
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import run_dir_path
from tests.support.sample_videos import library, make_video, truncated

library()
OFF = {"generate_embeddings": False, "generate_previews": False, "generate_captions": False}


def pipeline(videos: Path, out: Path, encoder: str = "copy", **settings: Any) -> Pipeline:
    return Pipeline(
        "split",
        stages=[
            VideoReader(str(videos)),
            FixedStrideExtractorStage(1.0, 1.0, 0.5, 0),
            ClipTranscodingStage(encoder=encoder),
            ClipWriterStage(str(out), str(videos), upload_clips=True, dry_run=False, **{**OFF, **settings}),
        ],
    )


def table(out: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(out.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good videos of every kind, and bad ones."""
    folder = tmp_path_factory.mktemp("videos")
    make_video(folder / "a.mp4", 72, audio=True)
    make_video(folder / "b.webm", 72, "libvpx-vp9")
    make_video(folder / "c.mkv", 24, rotation=90)
    make_video(folder / "short.mp4", 6)
    truncated(folder / "b.webm", folder / "cut.webm")
    (folder / "text.mp4").write_text("no video at all")
    (folder / "notes.txt").write_text("not even called one")
    return folder


@pytest.fixture(scope="module")
def split(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """One run that many tests look at."""
    out = tmp_path_factory.mktemp("split") / "out"
    made = pipeline(videos, out)
    return out, made.execute(InProcessExecutor(), quarantine_limit=1.0)


def test_every_video_and_clip_is_accounted_for(split: tuple[Path, Any]) -> None:
    out, result = split
    ledger = result.ledger
    assert (result.status, result.exit_code) == ("finished", 0)
    assert (ledger.records.n, ledger.quarantined.n, ledger.written.n) == (6, 2, 3 + 3 + 1)
    assert {name: t.n for name, t in ledger.stages[0].dropped.items()} == {"fixed_stride_extractor": 1}
    rows = table(out)
    assert len(rows) == len({row["id"] for row in rows}) == 7
    reasons = [
        json.loads(line)["reason"]
        for p in (run_dir_path(out) / "quarantine").iterdir()
        for line in p.read_text().splitlines()
    ]
    assert sorted(r.split(":")[1].strip() for r in reasons) == ["it is cut short", "no video that can be opened"]


def test_the_bytes_read_are_those_of_the_videos(videos: Path, split: tuple[Path, Any]) -> None:
    good = [videos / name for name in ("a.mp4", "b.webm", "c.mkv", "short.mp4")]
    assert split[1].ledger.read_bytes == sum(path.stat().st_size for path in good)


def test_clips_are_where_the_table_says(videos: Path, split: tuple[Path, Any]) -> None:
    out, _ = split
    rows = table(out)
    for row in rows:
        clip = out / row["clip_path"]
        assert clip.stat().st_size == row["clip_bytes"]
        assert ClipWriterStage.calculate_sha256(clip.read_bytes()) == row["clip_sha256"]
        assert read_facts(str(clip)).n_frames >= row["end_frame"] - row["first_frame"]
        meta = json.loads((out / "metas/v0" / f"{row['id']}.json").read_text())
        assert (meta["path"], meta["start_s"], meta["end_s"]) == (row["path"], row["start_s"], row["end_s"])
        assert row["id"] == clip_id(row["path"], (row["first_frame"], row["end_frame"]))
    assert len(list((out / "clips").iterdir())) == len(rows)
    assert [(r["start_s"], r["end_s"]) for r in rows if r["path"].endswith("a.mp4")] == fixed_spans(3.0, 1, 1, 0.5)
    assert (out / "processed_videos/a.mp4.json").exists()
    assert not list(out.rglob("*.part"))


def test_without_nvenc_x264_encodes_and_the_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from tamis.observe.report import write_report
    from tamis.video import encoding

    really = encoding._missing
    monkeypatch.setattr(encoding, "_missing", lambda name, n: "no card" if name == encoding.NVENC else really(name, n))
    make_video(tmp_path / "videos.mp4", 24)
    out = tmp_path / "out"
    result = pipeline(tmp_path / "videos.mp4", out, encoder="h264_nvenc").execute(InProcessExecutor())
    assert result.status == "finished"
    assert [row["encoder"] for row in table(out)] == ["libx264"]
    told = "h264_nvenc cannot be opened here (no card): "
    assert f"clip_transcoding: {told}libx264 encodes" in capfd.readouterr().err
    assert f"{told}clips for libx264: 1" in Path(write_report(str(run_dir_path(out)))).read_text()


@pytest.mark.parametrize("when", ["setup_on_node", "teardown"])
def test_only_what_a_dead_process_of_this_machine_left_is_removed(tmp_path: Path, when: str) -> None:
    """Other nodes and shards write to the same folder at the same time, and come and go."""
    stage = ClipFilesStage(str(tmp_path))
    ours = Path(clip_files._Written(str(tmp_path), 1).new(str(tmp_path / "clips" / "a.mp4")))
    machine, _, pid = ours.name.split(".")[3].partition("-")
    assert pid == str(os.getpid())
    left = ours.with_name(ours.name.replace(f"-{pid}.", "-4194305."))  # no process has a number so high
    elsewhere = left.with_name(left.name.replace(machine, "0" * 8))
    for path in (ours, left, elsewhere):
        path.touch()
    getattr(stage, when)()
    assert sorted((tmp_path / "clips").iterdir()) == sorted((ours, elsewhere))


ROW = {"path": "/videos/a.mp4", "start_s": 0.0, "end_s": 1.0, "end_frame": 24, "preview": b"webp"}


@pytest.mark.parametrize(
    ("name", "first_frame", "message"),
    [
        *(
            (name, 0, "its id is no name of a file")
            for name in ("../../evil", "/dev/null/evil", "..", ".evil", "", "a\0b", "x" * 300, None)
        ),
        ("good", "../../../evil", "its frames are no numbers"),
    ],
)
def test_a_record_that_names_no_file_of_the_output_goes_to_quarantine(
    name: str | None, first_frame: Any, message: str, tmp_path: Path
) -> None:
    stage = ClipFilesStage(str(tmp_path / "deep" / "out"), upload_clips=False, parts=("previews",))
    table = pa.table({k: [v] for k, v in (ROW | {"id": name, "first_frame": first_frame}).items()})
    assert stage.process(DocumentBatch(data=table)).num_items == 0
    ((_, (reason,)),) = stage._take_notes().bad
    assert message in reason
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    good = pa.table({k: [v] for k, v in (ROW | {"id": "good", "first_frame": 0}).items()})
    assert stage.process(DocumentBatch(data=good)).num_items == 1
    assert (tmp_path / "deep/out/previews/good/0_24.webp").read_bytes() == b"webp"
    assert (tmp_path / "deep/out/metas/v0/good.json").exists()


def test_a_video_with_the_longest_name_there_can_be_has_a_summary(tmp_path: Path) -> None:
    stage = ClipFilesStage(str(tmp_path), str(tmp_path))
    for name in ("a" * 251 + ".mp4", "\U0001f3a5" * 62 + ".mp4"):
        made = clip_files._Written(str(tmp_path), 1).new(
            str(tmp_path / "processed_videos" / f"{stage._relative(str(tmp_path / name))}.json")
        )
        Path(made).touch()
    assert stage._relative(str(tmp_path / "b" / "c.mp4")) == "b/c.mp4"


def test_encoding_keeps_the_same_clips(videos: Path, split: tuple[Path, Any], tmp_path: Path) -> None:
    result = pipeline(videos, tmp_path / "out", "libx264").execute(InProcessExecutor(), quarantine_limit=1.0)
    rows = table(tmp_path / "out")
    assert result.ledger.written.n == 7
    assert sorted(r["id"] for r in rows) == sorted(r["id"] for r in table(split[0]))
    assert {read_facts(str(tmp_path / "out" / r["clip_path"])).codec for r in rows} == {"h264"}


def test_a_dry_run_writes_the_table_alone(videos: Path, tmp_path: Path) -> None:
    made = pipeline(videos, tmp_path / "out")
    made.stages[-1] = ClipWriterStage(str(tmp_path / "out"), str(videos), True, True, False, False, False)
    made.execute(InProcessExecutor(), quarantine_limit=1.0)
    assert len(table(tmp_path / "out")) == 7
    assert not (tmp_path / "out/clips").exists()


def test_damage_inside_a_video_costs_the_clips_it_is_in(tmp_path: Path) -> None:
    import numpy as np

    noise = lambda i, w, h: np.random.default_rng(i).integers(0, 255, (h, w, 3), np.uint8)  # noqa: E731
    (tmp_path / "videos").mkdir()
    video = Path(make_video(tmp_path / "videos/a.mp4", 96, draw=noise))
    data = bytearray(video.read_bytes())
    third = len(data) // 2
    data[third : third + 3000] = bytes(3000)
    video.write_bytes(bytes(data))
    made = pipeline(tmp_path / "videos", tmp_path / "out", "libx264")
    result = made.execute(InProcessExecutor(), quarantine_limit=1.0)
    book = result.ledger.stages[-1]
    assert book.into.n == 4
    assert 0 < book.quarantined.n < 4
    assert len(table(tmp_path / "out")) == len(list((tmp_path / "out/clips").iterdir())) == 4 - book.quarantined.n
    told = [
        json.loads(line)
        for p in (run_dir_path(tmp_path / "out") / "quarantine").glob("*.jsonl")
        for line in p.read_text().splitlines()
    ]
    assert all("cannot be decoded" in t["reason"] and t["stage"] == "clip_files" for t in told)


def test_by_hand_a_video_is_an_object(videos: Path, tmp_path: Path) -> None:
    task = VideoTask("d", Video(videos / "a.mp4"))
    assert task.validate()
    task = FixedStrideExtractorStage(1.0, 1.0, 0.5, 2).process(task)
    assert task.data.metadata.num_frames == 72
    assert [c.span for c in task.data.clips] == [(0.0, 1.0), (1.0, 2.0)]
    assert (task.data.clips[0].duration, task.data.fraction, task.data.num_total_clips) == (1.0, 1.0, 2)
    task = ClipTranscodingStage(encoder="copy", num_clips_per_chunk=1).process(task)
    writer = ClipWriterStage(str(tmp_path / "out"), str(videos), True, False, False, False, False)
    task = writer.process(task)
    assert sorted(p.stem for p in (tmp_path / "out/clips").iterdir()) == sorted(str(c.uuid) for c in task.data.clips)
    assert task.data.is_10_bit_color() is False
    (batch,) = VideoReaderStage(str(videos)).process(FileGroupTask("d", ["a.mp4"]))
    assert batch.values("n_frames") == [72]


def test_mistakes_are_reported_when_the_stage_is_made(tmp_path: Path) -> None:
    for wrong in ((0.0, 1.0, 0.5, 0), (1.0, 0.0, 0.5, 0), (1.0, 1.0, 2.0, 0)):
        with pytest.raises(UsageError, match="fixed_stride_extractor"):
            FixedStrideExtractorStage(*wrong)
    with pytest.raises(UsageError, match="use_hwaccel=True has no meaning here: videos are decoded on the CPU"):
        ClipTranscodingStage(encoder="copy", use_hwaccel=True)
    with pytest.raises(UsageError, match="encoder_threads"):
        ClipTranscodingStage(encoder="copy", encoder_threads=0)
    with pytest.raises(UsageError, match="give a local folder, or s3://bucket/path"):
        ClipWriterStage("https://host/out", "", True, False, False, False, False)
    with pytest.raises(UsageError, match="embedding_algorithm"):
        ClipWriterStage(str(tmp_path), "", True, False, False, False, False, embedding_algorithm="other")
    with pytest.raises(UsageError, match="no encoder 'h265'"):
        ClipTranscodingStage(encoder="h265").setup_on_node()


def test_the_recipe_that_ships(videos: Path, tmp_path: Path) -> None:
    from tamis.recipe.load import load_recipe
    from tamis.recipe.step_names import PRESETS

    changes = {
        "input": str(videos / "a.mp4"),
        "output": str(tmp_path / "out"),
        "clip_seconds": "1",
        "min_clip_seconds": "0.5",
    }
    stages: Any = load_recipe(PRESETS / "video-split.yaml", overrides=changes).stages
    result = Pipeline("split", stages=stages).execute(InProcessExecutor())
    assert (result.status, result.ledger.written.n, len(table(tmp_path / "out"))) == ("finished", 3, 3)


def test_the_command_and_again(videos: Path, tmp_path: Path, split: tuple[Path, Any]) -> None:
    typed = [
        "video",
        str(videos),
        str(tmp_path / "out"),
        "--clip-seconds",
        "1",
        "--min-clip-seconds",
        "0.5",
        "--memory",
        "3GB",
        "--json",
        "--quarantine-limit",
        "100%",
    ]
    first = CliRunner().invoke(app, typed)
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["status"] == "finished"
    assert sorted(r["clip_sha256"] for r in table(tmp_path / "out")) == sorted(
        r["clip_sha256"] for r in table(split[0])
    )
    again = CliRunner().invoke(app, typed)
    assert json.loads(again.stdout)["status"] == "already"
    wrong = CliRunner().invoke(
        app, ["video", str(videos), str(tmp_path / "out2"), "--transcode", "h265", "--memory", "3GB"]
    )
    assert wrong.exit_code != 0
    assert "there is no encoder 'h265'; there are copy" in wrong.output


def test_clips_of_a_video_with_few_frames_are_all_there(tmp_path: Path) -> None:
    """A frame every eight seconds, a clip every second: several clips have the same frames."""
    (tmp_path / "videos").mkdir()
    make_video(tmp_path / "videos" / "slides.mkv", 3, times=lambda i: i * 8000)
    result = pipeline(tmp_path / "videos", tmp_path / "out").execute(InProcessExecutor(), quarantine_limit=1.0)
    rows = table(tmp_path / "out")
    assert len(rows) == len({row["id"] for row in rows}) == result.ledger.written.n >= 16
    assert len(list((tmp_path / "out" / "clips").iterdir())) == len(rows)
    for row in rows:
        clip = (tmp_path / "out" / row["clip_path"]).read_bytes()
        assert ClipWriterStage.calculate_sha256(clip) == row["clip_sha256"]
