"""Thumbnail grids: which images, and that nothing in a run directory can break the page."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.observe.thumbnails import __main__ as child
from tamis.observe.thumbnails.choose import MAX_PER_RULE, ChosenImage, Sheet, choose, first_rows, is_about_images
from tamis.observe.thumbnails.sheet import markup, thumbnail_grids
from tests.support.run_dirs import run_dir_path
from tests.support.sample_images import jpeg, png, tar


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Return a run directory with an output of one tar and verdicts of two rules over two inputs."""
    folder = run_dir_path(tmp_path / "out")
    (folder / "verdicts").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    source = tar(tmp_path / "in.tar", {f"{i}.jpg": jpeg(i) for i in range(30)})
    tar(tmp_path / "out" / "part-000000-000000000000000.tar", {f"k{i}.png": png(i) for i in range(3)})
    kept = json.dumps({"kept": f"{source}:0", "similarity": 1.0})
    rows = [(0, i, f"id{i}", "size", "min_side", "12.5") for i in range(20)]
    rows += [(0, 20, "id20", "dups", "duplicate", kept), (7, 1, "x", "size", "min_side", "1")]
    names = ["file", "offset", "id", "stage", "rule", "value"]
    pq.write_table(
        pa.table([pa.array(c) for c in zip(*rows, strict=True)], names=names), folder / "verdicts" / "v.parquet"
    )
    plan = {
        "stages": [{"stage": "tamis.stages.image.io.image_reader.ImageReaderStage"}],
        "inputs": {"paths": [str(source)], "sizes": [1], "mtimes_ns": [1]},
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder


def test_some_of_what_was_kept_and_of_what_each_rule_dropped(run_dir: Path) -> None:
    kept, small, twice = choose(run_dir)
    assert {c.path.rpartition("/")[2] for c in kept.images} == {"part-000000-000000000000000.tar"}
    assert (small.stage, small.rule, len(small.images)) == ("size", "min_side", MAX_PER_RULE)
    source = str(run_dir.parent / "in.tar")
    assert twice == Sheet("dups", "duplicate", [ChosenImage(source, 20, "id20", "similarity 1.0", (source, 0))])


def test_of_a_table_of_millions_only_the_first_rows_are_read(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run_dir / "verdicts" / "v.parquet"
    many = pq.read_table(path)
    pq.write_table(pa.concat_tables([many] * 200), path)
    monkeypatch.setattr("tamis.observe.thumbnails.choose.MAX_ROWS", 2000)
    assert len(list(first_rows(path, ["rule", "absent"]))) == 2048
    path.write_bytes(b"no table")
    assert list(first_rows(path, ["rule"])) == []


def test_the_page_has_images_of_them(run_dir: Path) -> None:
    pytest.importorskip("simplejpeg", reason="the extra `image` is not installed")
    html = thumbnail_grids(run_dir)
    assert html.count("data:image/jpeg;base64,") == 3 + MAX_PER_RULE + 2
    assert "<h3>Dropped by min_side (size)</h3>" in html
    assert "40 x 30<br/>12.5" in html
    assert "repeats 0.jpg" in html
    assert len(html) < 100_000


def test_runs_about_anything_else_have_none(tmp_path: Path) -> None:
    assert not is_about_images(tmp_path)
    (tmp_path / "plan.json").write_text('{"stages": [{"stage": "tamis.stages.text.io.reader.jsonl.JsonlReader"}]}')
    assert thumbnail_grids(tmp_path) == ""


def test_names_are_escaped_and_what_is_no_base64_is_left_out() -> None:
    evil = '"><script>alert(1)</script>'
    html = markup(
        [{"stage": evil, "rule": evil, "images": [{"name": evil, "id": evil, "jpeg": 'x" onerror="alert(1)'}]}, 5]
    )
    assert "<script" not in html
    assert "onerror" not in html
    assert html.count("&quot;") >= 1
    many = [{"name": "a", "jpeg": "QUJD"}] * 1000
    assert markup([{"stage": "s", "rule": "r", "images": many}] * 100).count("<img") == 17 * MAX_PER_RULE


def test_a_chart_that_is_gone_or_too_large_is_named_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("simplejpeg", reason="the extra `image` is not installed")
    (tmp_path / "a.jpg").write_bytes(jpeg(1, 400, 300))
    assert child._made(ChosenImage(str(tmp_path / "none.jpg"), 0)) is None
    assert child._made(ChosenImage(str(tmp_path / "a.jpg"), 1)) is None
    made = child._made(ChosenImage(str(tmp_path / "a.jpg"), 0, value="3"))
    assert made is not None
    assert (made["name"], made["size"], made["value"], made["jpeg"] != "") == ("a.jpg", "400 x 300", "3", True)
    monkeypatch.setattr(child, "_MAX_WORK_BYTES", 1000)
    made = child._made(ChosenImage(str(tmp_path / "a.jpg"), 0))
    assert made is not None
    assert made["jpeg"] == ""
