"""Images and videos in buckets: the output of local folders, every file fetched once, no copies left."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.cli.media import video_job as video
from tamis.errors import StoreError, TamisError
from tamis.stages.image.deduplication import ImageDuplicatesRemovalStage
from tamis.stages.image.filters import ImageSizeFilterStage
from tamis.stages.image.io import ImageReader, ImageReaderStage, ImageWriterStage
from tamis.stages.video.clipping.clip_extraction_stages import ClipTranscodingStage, FixedStrideExtractorStage
from tamis.stages.video.io.clip_files import ClipFilesStage
from tamis.stages.video.io.clip_writer import ClipWriterStage
from tamis.stages.video.io.video_reader import VideoReader
from tamis.stores import opening, spool
from tamis.stores.s3 import Bucket
from tamis.tasks import DocumentBatch
from tests.support.run_dirs import run_dir_path
from tests.support.s3_server import FaultyProxy
from tests.support.sample_images import jpeg, members_of, png, tar
from tests.support.sample_videos import library, make_video


@pytest.fixture(autouse=True)
def nowhere() -> Any:
    yield
    spool.keep_copies(None)


@pytest.fixture
def gets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of objects of which a range was read, one entry for each request."""
    asked: list[str] = []
    real = Bucket.read_into

    def noted(self: Bucket, key: str, *rest: Any) -> None:
        asked.append(key)
        real(self, key, *rest)

    monkeypatch.setattr(Bucket, "read_into", noted)
    return asked


def in_bucket(s3: Any, bucket: str, prefix: str) -> dict[str, bytes]:
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", [])
    return {o["Key"][len(prefix) + 1 :]: s3.get_object(Bucket=bucket, Key=o["Key"])["Body"].read() for o in listed}


# -- copies -----------------------------------------------------------------------------------------------------------
def test_copies_are_made_once_and_bounded(s3: Any, bucket: str, tmp_path: Path, gets: list[str]) -> None:
    for name in "abc":
        s3.put_object(Bucket=bucket, Key=f"{name}.mp4", Body=name.encode() * 1000)
    spool.keep_copies(str(tmp_path / "spool"), 2500)

    def read(name: str, at: int = 10) -> bytes:
        with spool.open_bytes(f"s3://{bucket}/{name}.mp4") as file:
            assert file.size == 1000
            return file.pread(5, at)

    def copies() -> int:
        return sum(not name.endswith(".lock") for name in os.listdir(tmp_path / "spool"))

    assert [read("a"), read("a", 997), read("b"), read("a")] == [b"aaaaa", b"aaa", b"bbbbb", b"aaaaa"]
    assert gets == ["a.mp4", "b.mp4"]
    assert read("c") == b"ccccc"  # b was used longest ago, and goes
    assert read("a") == b"aaaaa"
    assert (gets[2:], copies()) == (["c.mp4"], 2)
    with spool.open_bytes(f"s3://{bucket}/a.mp4"), spool.open_bytes(f"s3://{bucket}/c.mp4"):
        assert read("b") == b"bbbbb"  # both are in use: it is read where it lies
        assert copies() == 2
    s3.put_object(Bucket=bucket, Key="a.mp4", Body=b"x" * 1000)
    opening.forget(f"s3://{bucket}/a.mp4")
    assert read("a") == b"xxxxx"


def test_many_small_copies_are_not_looked_at_again_for_each_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of single images: thousands of copies.

    Looking at all for each took 80 ms an image with 4,000 of them.
    """

    class Made:
        size, version = 1000, 1

        def __init__(self, url: str) -> None:
            self.url = url

        def read_into(self, offset: int, view: memoryview) -> None:
            view[:] = bytes(len(view))

        def check(self) -> None: ...

    n_looks = 0
    real = os.scandir

    def counted(path: Any) -> Any:
        nonlocal n_looks
        n_looks += 1
        return real(path)

    monkeypatch.setattr(opening, "_sources", {})
    monkeypatch.setattr(opening, "_find_source", Made)
    monkeypatch.setattr(os, "scandir", counted)
    spool.keep_copies(str(tmp_path / "spool"), 80_000)
    for i in range(200):
        with spool.open_bytes(f"s3://b/{i}.jpg") as file:
            assert file.pread(3, 0) == bytes(3)
    left = [p for p in (tmp_path / "spool").iterdir() if p.name != ".lock"]
    assert sum(p.stat().st_size for p in left) <= 80_000
    assert len(left) >= 70  # and nothing but copies
    assert n_looks <= 20


def test_what_a_killed_process_left_half_way_makes_room(s3: Any, bucket: str, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="a.mp4", Body=b"a" * 1000)
    spool.keep_copies(str(tmp_path / "spool"), 1500)
    (tmp_path / "spool").mkdir()
    left = tmp_path / "spool" / f".{'0' * 32}.mp4.{'1' * 16}.tmp"
    left.write_bytes(b"?" * 900)
    with spool.local_or_open(f"s3://{bucket}/a.mp4") as here:
        assert isinstance(here, str)
        assert Path(here).read_bytes() == b"a" * 1000
    assert not left.exists()


def test_a_disk_that_is_full_is_no_room(s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    s3.put_object(Bucket=bucket, Key="a.mp4", Body=b"a" * 1000)
    spool.keep_copies(str(tmp_path / "spool"))
    monkeypatch.setattr(spool, "copy_into", full)
    with spool.open_bytes(f"s3://{bucket}/a.mp4") as file:
        assert file.pread(5, 0) == b"aaaaa"
    assert [p.name for p in (tmp_path / "spool").iterdir()] == [".lock"]


def test_without_a_folder_parts_are_read_in_ranges(s3: Any, bucket: str, gets: list[str]) -> None:
    data = os.urandom(3 << 20)
    s3.put_object(Bucket=bucket, Key="a.tar", Body=data)
    with spool.open_bytes(f"s3://{bucket}/a.tar") as file:
        for at in (0, 512, 100_000, 700_000, 2_000_000, 1_000, (3 << 20) - 3):
            assert file.pread(512, at) == data[at : at + 512]
        assert (file.pread(512, (3 << 20) + 5), file.pread(-5, 7)) == (b"", b"")  # as a damaged header would have it
    assert len(gets) < 8


def test_ids_to_remove_lie_in_a_bucket(s3: Any, bucket: str) -> None:
    held = io.BytesIO()
    pq.write_table(pa.table({"id": ["a", "c"]}), held)
    s3.put_object(Bucket=bucket, Key="ids/gone.parquet", Body=held.getvalue())
    for place in (f"s3://{bucket}/ids", f"s3://{bucket}/ids/gone.parquet"):
        stage = ImageDuplicatesRemovalStage(place)
        assert stage.removal_parquets_dir == place
        assert stage.process(DocumentBatch(data=pa.table({"id": ["a", "b", "c"]}))).values("id") == ["b"]


# -- images -----------------------------------------------------------------------------------------------------------
def shards(folder: Path) -> Path:
    folder.mkdir()
    some = {"000.jpg": jpeg(0, 80, 70), "000.txt": b"a caption"} | {
        f"{i:03d}.jpg": jpeg(i, 80, 70) for i in range(1, 6)
    }
    tar(folder / "a.tar", {**some, "006.jpg": jpeg(6, 20, 20), "007.jpg": b"no image"})
    (folder / "b.png").write_bytes(png(9, 90, 90))
    (folder / "b.txt").write_bytes(b"beside it")
    return folder


def curated(source: str, target: str) -> Any:
    stages = [ImageReader(source), ImageSizeFilterStage(min_side=64), ImageWriterStage(target, images_per_tar=4)]
    pipeline = Pipeline("images", stages=stages)
    pipeline.run(InProcessExecutor())
    return pipeline.last_result


def contents(tars: dict[str, bytes]) -> list[tuple[str, bytes]]:
    """Members without the marks of folders in their names."""
    found = []
    for data in tars.values():
        with tarfile.open(fileobj=io.BytesIO(data)) as opened:
            for info in opened.getmembers():
                body = opened.extractfile(info)
                assert body is not None
                found.append((info.name.rpartition("-")[2][8:], body.read()))
    return sorted(found)


def test_images_from_a_bucket_into_a_bucket(s3: Any, bucket: str, tmp_path: Path, gets: list[str]) -> None:
    pytest.importorskip("simplejpeg", reason="the extra `image` is not installed")
    source = shards(tmp_path / "in")
    for path in source.iterdir():
        s3.upload_file(str(path), bucket, f"in/{path.name}")
    here = curated(str(source), str(tmp_path / "out"))
    there = curated(f"s3://{bucket}/in/", f"s3://{bucket}/out")
    for result in (here, there):
        assert not result.skipped_files  # the caption is read with its image
        assert (result.ledger.records.n, result.ledger.written.n, result.ledger.quarantined.n) == (9, 7, 1)
    local = {p.name: p.read_bytes() for p in (tmp_path / "out").glob("part-*.tar")}
    made = {n: d for n, d in in_bucket(s3, bucket, "out").items() if n.startswith("part-")}
    tars = {n: d for n, d in made.items() if n.endswith(".tar")}
    assert sorted(tars) == sorted(local)
    assert sorted(made) == sorted([*tars, *(n.replace(".tar", ".parquet") for n in tars)])
    assert contents(tars) == contents(local)
    assert [name for name, _ in contents(tars)].count("") == 0
    assert gets.count("in/a.tar") == 1  # for reading and writing together
    (report,) = (tmp_path / "runs").rglob("report.html")
    assert report.read_text().count("data:image/jpeg") == 8  # those that stayed, and the one that is too small
    assert curated(f"s3://{bucket}/in/", f"s3://{bucket}/out").status == "already"


@pytest.mark.parametrize("caption", ["missing", "there", "secret"])
def test_an_image_of_a_bucket_that_we_may_not_list_needs_no_caption(
    caption: str, s3: Any, bucket: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    """S3 refuses (403) what is not there to whoever may not list a bucket.

    One that is there and refused is an error, where that can be told.
    """
    s3.put_object(Bucket=bucket, Key="in/b.png", Body=png(9, 90, 90))
    if caption != "missing":
        s3.put_object(Bucket=bucket, Key="in/b.txt", Body=b"beside it")
    proxy.fault = {
        "missing": lambda method, path, n: "403" if "b.png" not in path else "",
        "there": lambda method, path, n: "403" if "list-type" in path or ".json" in path else "",
        "secret": lambda method, path, n: "403" if path.endswith("b.txt") else "",
    }[caption]
    if caption == "secret":
        with pytest.raises(TamisError, match=r"in/b\.txt: the store refuses"):
            curated(f"s3://{bucket}/in/b.png", str(tmp_path / "out"))
        return
    result = curated(f"s3://{bucket}/in/b.png", str(tmp_path / "out"))
    (made,) = (tmp_path / "out").glob("part-*.tar")
    assert result.ledger.written.n == 1
    assert [name for name, _ in contents({"": made.read_bytes()})] == {
        "missing": [".png"],
        "there": [".png", ".txt"],
    }[caption]


def test_images_of_a_tar_are_there_by_hand(s3: Any, bucket: str, tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg", reason="the extra `image` is not installed")
    from tamis.tasks import FileGroupTask

    path = tar(tmp_path / "a.tar", {"000.jpg": jpeg(0, 80, 70), "000.txt": b"a caption", "001.jpg": jpeg(1, 80, 70)})
    s3.upload_file(str(path), bucket, "a.tar")
    (batch,) = ImageReaderStage().process(FileGroupTask("x", [f"s3://{bucket}/a.tar"]))
    assert batch.data[0].metadata["caption"] == "a caption"
    assert batch.data[1].image_bytes == members_of(path)["001.jpg"]
    assert batch.data[1].image_data.shape == (70, 80, 3)


def test_no_copy_is_made_in_the_folder_of_a_run_that_ended(s3: Any, bucket: str, tmp_path: Path) -> None:
    s3.upload_file(str(shards(tmp_path / "in") / "a.tar"), bucket, "in/a.tar")
    curated(f"s3://{bucket}/in/", str(tmp_path / "out"))
    with spool.open_bytes(f"s3://{bucket}/in/a.tar") as file:  # by hand, in the process that ran it
        assert file.pread(3, 0) == b"000"
    assert not (run_dir_path(tmp_path / "out") / "scratch").exists()


def test_a_store_that_does_not_answer_condemns_no_image(
    s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shards(tmp_path / "in") / "a.tar"
    s3.upload_file(str(path), bucket, "in/a.tar")
    from tamis.stages.image import pixels

    monkeypatch.setattr(pixels, "read_span", lambda *_: (_ for _ in ()).throw(StoreError("the store is away")))
    from tamis import processing_stage

    @processing_stage(name="look")
    def look(batch: Any) -> Any:
        for where in pixels.places("look", batch):
            pixels.stored_bytes(where)
        return batch

    pipeline = Pipeline("p", stages=[ImageReader(f"s3://{bucket}/in/"), look, ImageWriterStage(str(tmp_path / "out"))])
    with pytest.raises(Exception, match="the store is away"):
        pipeline.run(InProcessExecutor())


# -- videos -----------------------------------------------------------------------------------------------------------
def cut(source: str, target: str) -> Any:
    writer = ClipWriterStage(target, source, True, False, False, False, False)
    stages = [
        VideoReader(source),
        FixedStrideExtractorStage(1.0, 1.0, 0.5, limit_clips=0),
        ClipTranscodingStage(encoder="copy"),
        writer,
    ]
    pipeline = Pipeline("videos", stages=stages)
    pipeline.run(InProcessExecutor())
    return pipeline.last_result


def test_videos_from_a_bucket_into_a_bucket(s3: Any, bucket: str, tmp_path: Path, gets: list[str]) -> None:
    library()
    folder = tmp_path / "videos"
    folder.mkdir()
    make_video(folder / "a.mp4", 48)
    (folder / "b.mp4").write_bytes(b"this is a text")
    for path in folder.iterdir():
        s3.upload_file(str(path), bucket, f"videos/{path.name}")
    here = cut(str(folder), str(tmp_path / "out"))
    there = cut(f"s3://{bucket}/videos", f"s3://{bucket}/out")
    assert here.ledger.written.n == there.ledger.written.n == 2
    assert here.ledger.quarantined.n == there.ledger.quarantined.n == 1
    found = in_bucket(s3, bucket, "out")
    clips = sorted(data for name, data in found.items() if name.startswith("clips/"))
    assert clips == sorted(p.read_bytes() for p in (tmp_path / "out" / "clips").iterdir())
    assert sum(name.startswith("metas/v0/") for name in found) == 2
    assert "processed_videos/a.mp4.json" in found
    assert gets.count("videos/a.mp4") == 1  # for its facts, its spans and all cuts together
    assert not list((tmp_path / "runs").rglob("clips-being-sent/*"))
    (report,) = (tmp_path / "runs").rglob("report.html")
    assert report.read_text().count("data:image/jpeg") == 2
    assert cut(f"s3://{bucket}/videos", f"s3://{bucket}/out").status == "already"


def test_a_video_is_read_in_place_when_there_is_no_room(s3: Any, bucket: str, tmp_path: Path) -> None:
    library()
    from tamis.video.facts import read_facts

    path = make_video(tmp_path / "a.mp4", 48)
    s3.upload_file(str(path), bucket, "a.mp4")
    assert read_facts(f"s3://{bucket}/a.mp4") == read_facts(str(path))
    spool.keep_copies(str(tmp_path / "spool"), 10)
    assert read_facts(f"s3://{bucket}/a.mp4") == read_facts(str(path))


@pytest.mark.parametrize(
    ("key", "inside"),
    [
        ("videos/a.mp4", "a.mp4"),
        ("videos/more/a.mp4", "more/a.mp4"),
        ("videos//tmp/a.mp4", None),
        ("videos/b/../../../tmp/a.mp4", None),
        ("videos2/a.mp4", None),
        (f"videos/{'x' * 300}/a.mp4", None),
    ],
)
def test_no_key_leads_out_of_the_output(key: str, inside: str | None, tmp_path: Path) -> None:
    """Whoever may write to the bucket chooses keys."""
    stage = ClipFilesStage(str(tmp_path), "s3://b/videos/")
    name = stage._relative(f"s3://b/{key}")
    assert name == inside if inside is not None else (name.startswith("a.mp4-") and "/" not in name)


def test_the_command_takes_buckets() -> None:
    stages = video.VideoJob("s3://videos/raw/", "s3://videos/clips", video.VideoOptions()).stages()
    (_, reader), (_, writer) = stages[0], stages[-1]
    assert (reader["input_video_path"], writer["output_path"]) == ("s3://videos/raw/", "s3://videos/clips")
    _, writer = video.VideoJob("s3://videos/raw/a.mp4", "out", video.VideoOptions()).stages()[-1]
    assert writer["input_path"] == "s3://videos/raw"
