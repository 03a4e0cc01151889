"""Images through a run: read as rows, written as tars with Parquet files, bad ones in quarantine, none lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline, processing_stage
from tamis.errors import UsageError
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.image.io import ConvertImageBatchToDocumentBatchStage, ImageReader, ImageReaderStage, ImageWriterStage
from tamis.stages.text.io.writer import JsonlWriter
from tests.support.run_dirs import run_dir_path
from tests.support.sample_images import jpeg, members_of, png, tar


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Write a tar and a folder, with good images and bad ones."""
    folder = tmp_path / "in"
    (folder / "single").mkdir(parents=True)
    good = {f"a{i}.jpg": jpeg(i) for i in range(5)}
    members: dict[str, bytes] = {}
    for name, data in good.items():
        key = name.partition(".")[0]
        members |= {
            name: data,
            f"{key}.txt": f"caption of {key}".encode(),
            f"{key}.json": b'{"n": 1}',
            f"{key}.cls": b"7",
        }
    members |= {"bad1.jpg": b"just a text", "bad2.jpg": b"", "bad3.png": png(9)[:200], "only.txt": b"no image"}
    tar(folder / "shard.tar", members)
    (folder / "single" / "one.png").write_bytes(png(20))
    (folder / "single" / "one.txt").write_text("a single image")
    (folder / "single" / "text.jpg").write_text("this is text")
    (folder / "single" / "empty.jpg").write_bytes(b"")
    (folder / "single" / "cut.jpg").write_bytes(jpeg(21, 200, 100)[:-300])
    (folder / "single" / "lonely.txt").write_text("belongs to nobody")
    return folder


def run(stages: list[Any], **settings: Any) -> Any:
    pipeline = Pipeline("images", stages=stages)
    return pipeline.execute(InProcessExecutor(), **settings)


def quarantined(output: Path) -> list[dict[str, Any]]:
    found = sorted((run_dir_path(output) / "quarantine").glob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


def test_images_come_out_byte_for_byte_with_what_belongs_to_them(mixed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run([ImageReader(str(mixed)), ImageWriterStage(str(out), images_per_tar=4)])
    ledger = result.ledger
    assert (ledger.records.n, ledger.written.n, ledger.quarantined.n) == (13, 6, 7)
    tars = sorted(out.glob("*.tar"))
    assert [p.with_suffix(".parquet").exists() for p in tars] == [True] * len(tars)
    found = {name: data for path in tars for name, data in members_of(path).items()}
    before = members_of(mixed / "shard.tar")
    by_key = {name.split("_")[-1]: data for name, data in found.items() if name.startswith("shard")}
    assert by_key["000000.jpg"] == before["a0.jpg"]
    assert by_key["000003.txt"] == b"caption of a3"
    assert by_key["000003.json"] == b'{"n": 1}'
    assert by_key["000004.cls"] == b"7"
    single = {name.split(".")[1]: data for name, data in found.items() if name.startswith("one")}
    assert single == {"png": png(20), "txt": b"a single image"}
    rows = [row for path in tars for row in pq.read_table(path.with_suffix(".parquet")).to_pylist()]
    for path in tars:  # the rows beside a tar name its members, in their order
        beside = pq.read_table(path.with_suffix(".parquet"))
        assert beside["member_name"].to_pylist() == [n for n in members_of(path) if n.endswith(("jpg", "png", "webp"))]
    rows.sort(key=lambda r: r["original_member"] or "z")
    assert len(rows) == 6
    assert (rows[0]["width"], rows[0]["height"], rows[0]["original_member"]) == (40, 30, "a0.jpg")
    assert rows[0]["member_name"] == f"{rows[0]['image_id']}.jpg"
    reasons = sorted(e["reason"] for e in quarantined(out))
    assert [r for r in reasons if "zero bytes" in r] == ["damaged: bad2.jpg: zero bytes", "damaged: zero bytes"]
    assert sum("no image: it begins with" in r for r in reasons) == 2
    assert sum("cut off" in r for r in reasons) == 2
    assert sum("a sample without an image" in r for r in reasons) == 1
    passed = [p for p in result.skipped_files if "lonely" in str(p.examples)]
    assert [p.n for p in passed] == [1]


def test_tars_are_filled_across_batches(tmp_path: Path) -> None:
    for i in range(3):
        tar(tmp_path / f"s{i}.tar", {f"{j}.jpg": jpeg(10 * i + j) for j in range(4)})
    out = tmp_path / "out"
    reader = [FilePartitioningStage(str(tmp_path), files_per_partition=3, file_extensions=[".tar"]), ImageReaderStage()]
    run([*reader, ImageWriterStage(str(out), images_per_tar=5)])
    assert sorted(len(members_of(p)) for p in out.glob("*.tar")) == [4, 4, 4]  # three at least, evenly
    small = tmp_path / "small"
    run([ImageReader(str(tmp_path / "s0.tar")), ImageWriterStage(str(small), max_tar_bytes=3000)])
    assert all(p.stat().st_size <= 10240 for p in small.glob("*.tar"))
    assert len(list(small.glob("*.tar"))) == 4


def test_a_tar_that_is_cut_in_the_middle_loses_only_what_is_cut(tmp_path: Path) -> None:
    whole = tar(tmp_path / "w.tar", {f"{i}.jpg": jpeg(i) for i in range(4)})
    data = whole.read_bytes()
    at = data.index(b"3.jpg") + 700
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "cut.tar").write_bytes(data[:at])
    (tmp_path / "in" / "none.tar").write_text("no tar at all, " * 100)
    out = tmp_path / "out"
    result = run([ImageReader(str(tmp_path / "in")), ImageWriterStage(str(out))])
    assert (result.ledger.written.n, result.ledger.quarantined.n, result.ledger.n_lost_files) == (3, 1, 1)
    reasons = [e["reason"] for e in quarantined(out)]
    assert any("the tar ends inside '3.jpg'" in r for r in reasons)
    assert any("no tar, or damaged at its beginning" in r for r in reasons)


def test_a_stage_of_ones_own_works_on_objects(tmp_path: Path) -> None:
    tar(tmp_path / "s.tar", {"0.png": png(0), "1.txt": b"one"} | {f"{j}.png": png(j) for j in range(1, 4)})
    seen: list[tuple[Any, ...]] = []

    @processing_stage(name="mine")
    def mine(batch: Any) -> Any:
        for image in batch.data:
            seen.append((image.image_id[-1], image.image_data.shape, image.metadata["caption"]))
            image.aesthetic_score = float(image.image_id[-1])
        batch.data[2].image_data = np.zeros((8, 9, 3), np.uint8)
        batch.data = [p for p in batch.data if p.aesthetic_score != 0]
        return batch

    out = tmp_path / "out"
    result = run([ImageReader(str(tmp_path / "s.tar")), mine, ImageWriterStage(str(out))])
    assert seen == [(str(i), (30, 40, 3), "one" if i == 1 else None) for i in range(4)]
    assert (result.ledger.written.n, result.ledger.n_dropped) == (3, 1)
    (path,) = out.glob("*.tar")
    found = members_of(path)
    assert [
        d == png(i) for i, d in zip((1, 2, 3), [v for n, v in found.items() if n.endswith("png")], strict=True)
    ] == [True, False, True]
    rows = pq.read_table(path.with_suffix(".parquet")).to_pylist()
    assert [(r["aesthetic_score"], r["width"]) for r in rows] == [(1.0, 40), (2.0, 9), (3.0, 40)]


def test_images_stay_images_from_one_segment_to_the_next(tmp_path: Path) -> None:
    tar(tmp_path / "s.tar", {f"{j}.png": png(j, 40 + j, 40) for j in range(5)})

    @processing_stage(name="narrow")
    def narrow(batch: Any) -> Any:
        batch.data = [p for p in batch.data if p.metadata["width"] < 44]
        return batch

    @processing_stage(name="even")
    def even(batch: Any) -> Any:
        return type(batch)(batch.dataset_name, [p for p in batch.data if p.image_data.shape[1] % 2 == 0])

    result = run(
        [ImageReader(str(tmp_path / "s.tar")), narrow, even, ImageWriterStage(str(tmp_path / "o"))], mode="batch"
    )
    assert (result.exit_code, result.ledger.written.n) == (0, 2)
    (path,) = (tmp_path / "o").glob("*.tar")
    assert sorted(members_of(path).values()) == sorted([png(0, 40, 40), png(2, 42, 40)])


def test_outputs_elsewhere_than_in_folders_and_buckets_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot write there; give a local folder, or s3://bucket/path"):
        ImageWriterStage("https://host/clean/")


def test_documents_of_images(tmp_path: Path) -> None:
    tar(tmp_path / "s.tar", {f"{j}.jpg": jpeg(j) for j in range(2)})
    out = tmp_path / "out"
    run(
        [
            ImageReader(str(tmp_path / "s.tar")),
            ConvertImageBatchToDocumentBatchStage(["image_id", "width"]),
            JsonlWriter(str(out)),
        ]
    )
    (path,) = out.glob("*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [sorted(r) for r in rows] == [["image_id", "width"]] * 2
    assert [r["width"] for r in rows] == [40, 40]
