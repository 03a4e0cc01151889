"""`tamis plan`: what a run would take, without touching the output."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.cli.main import app
from tamis.cli.plan.input_heads import take
from tamis.engine.run.budget.shares import STEP_BYTES
from tests.support.cli_runner import CliRunner
from tests.support.run_dirs import run_dir_path
from tests.support.warm_python import run_python

SRC = Path(__file__).parents[2] / "src"


def tamis(*args: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC), **more}
    return run_python("-m", "tamis.cli.start", *args, env=env, cwd=cwd)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    lines = "".join(json.dumps({"id": i, "text": f"document {i} " * 20}) + "\n" for i in range(2000)).encode()
    (tmp_path / "in/a.jsonl").write_bytes(lines)
    (tmp_path / "in/b.jsonl.gz").write_bytes(gzip.compress(lines))
    pq.write_table(pa.table({"id": list(range(2000)), "text": ["some text " * 20] * 2000}), tmp_path / "in/c.parquet")
    return tmp_path


def test_compressed_input_is_larger_though_the_last_run_read_none(place: Path, tmp_path: Path) -> None:
    more = {"TAMIS_PROFILES": str(tmp_path / "profiles")}
    for _ in range(2):
        run = tamis(
            "run", "copy", "--set", "input=in/a.jsonl", "--set", "output=one", "--fresh", "-q", cwd=place, **more
        )
        assert run.returncode == 0, run.stderr
    done = tamis("plan", "copy", "--set", "input=in/b.jsonl.gz", "--set", "output=out", "--json", cwd=place, **more)
    plan = json.loads(done.stdout)
    assert plan["decoded_bytes"] > 1.5 * plan["input_bytes"]


def test_a_plan(place: Path) -> None:
    done = tamis(
        "plan",
        "copy",
        "--set",
        "input=in",
        "--set",
        "output=out",
        "--memory",
        "512MB",
        "--probe-mb",
        "0.5",
        "--json",
        cwd=place,
    )
    plan = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert plan["kinds"] == {"jsonl": 1, "jsonl.gz": 1, "parquet": 1}
    assert plan["n_files"] == 3
    assert plan["budget_bytes"] == 512_000_000
    size = (place / "in/a.jsonl").stat().st_size
    assert 2 * size < plan["decoded_bytes"] < 3 * size
    assert 50_000_000 < plan["smallest_budget_bytes"] < 400_000_000
    assert plan["smallest_budget_bytes"] * 0.4 < plan["peak_bytes"] <= plan["budget_bytes"]
    assert plan["n_partitions"] >= 1
    assert plan["kept_share"] == 1.0
    assert 0 < plan["output_bytes"] < 2 * plan["decoded_bytes"]
    assert not (place / "out").exists()


def test_a_budget_that_is_too_small(place: Path) -> None:
    done = tamis(
        "plan", "copy", "--set", "input=in", "--set", "output=out", "--memory", "30MB", "--probe-mb", "0.2", cwd=place
    )
    assert done.returncode == 4
    assert "the budget is too small: give --memory" in done.stdout
    smallest = done.stdout.partition("give --memory ")[2].split()[0]
    enough = tamis(
        "plan", "copy", "--set", "input=in", "--set", "output=out", "--memory", smallest, "--probe-mb", "0.2", cwd=place
    )
    assert (enough.returncode, enough.stderr) == (0, "")


def test_nothing_to_probe(place: Path) -> None:
    (place / "broken").mkdir()
    (place / "broken/a.parquet").write_bytes(b"PAR1 no PAR1")
    done = tamis("plan", "copy", "--set", "input=broken", "--set", "output=out", cwd=place)
    assert done.returncode == 1
    assert "nothing to try the recipe on" in done.stderr
    assert "Traceback" not in done.stderr


def test_heads(place: Path, tmp_path: Path) -> None:
    (tmp_path / "heads").mkdir()
    paths = [str(place / "in" / name) for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "gone.jsonl")]
    heads = take(paths, str(tmp_path / "heads"), 400_000)
    first = Path(heads[0]["copy"]).read_bytes()
    assert (place / "in/a.jsonl").read_bytes().startswith(first)
    assert (first[-1:], heads[0]["ratio"]) == (b"\n", 1.0)
    assert 90_000 < len(first) <= 100_000
    assert Path(heads[1]["copy"]).read_bytes() == first
    assert [head["n_bytes"] for head in heads[:2]] == [len(first)] * 2
    assert heads[1]["ratio"] > 4
    assert pq.read_table(heads[2]["copy"]).column_names == ["id", "text"]
    assert "No such file" in heads[3]["error"]


def planned(*args: str, cwd: Path, **more: str) -> dict[str, Any]:
    done = tamis("plan", *args, "--json", cwd=cwd, **more)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_plan_of_videos_has_their_guide_and_that_of_stages_with_models(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.mp4").write_bytes(b"a film")
    (tmp_path / "clips.yaml").write_text(
        """
name: clips
stages:
  - _target_: tamis.stages.video.io.video_reader.VideoReader
    input_video_path: in
  - _target_: tamis.stages.video.clipping.transnetv2_extraction.TransNetV2ClipExtractionStage
  - _target_: tamis.stages.video.filtering.motion_filter.MotionVectorDecodeStage
  - _target_: tamis.stages.video.io.clip_writer.ClipWriterStage
    output_path: out
    input_path: in
    upload_clips: true
    dry_run: false
    generate_embeddings: false
    generate_previews: false
    generate_captions: false
"""
    )
    plan = planned("clips.yaml", "--no-probe", cwd=tmp_path)
    assert plan["guide"] == {"size": "below 1,000 videos", "nodes": "1", "gpus": "1 to 2", "notes": "single machine"}
    assert plan["guide_stages"] == [
        "TransNetV2ClipExtractionStage: batch size 1, GPU memory 8 GB used, 16 GB requested, about 2 clips/s"
    ]


def test_a_plan_says_where_it_comes_from_and_how_sure_it_is(place: Path) -> None:
    args = ("copy", "--set", "input=in", "--set", "output=out", "--memory", "512MB")
    plan = planned(*args, "--probe-mb", "0.5", cwd=place)
    assert plan["basis"] == "a probe: this pipeline has not run on this machine yet"
    for name in ("peak_bytes", "scratch_bytes", "output_bytes", "seconds"):
        span = plan["forecast"][name]
        assert 0 <= span["low"] <= span["expected"] <= span["high"], name
    assert plan["forecast"]["peak_bytes"]["high"] <= 512_000_000
    assert plan["guide"]["memory"] == "32 GB"
    assert planned(*args, "--no-probe", cwd=place)["basis"].startswith("starting table")


def test_after_a_run_the_plan_comes_from_it_and_tries_nothing(place: Path) -> None:
    on = {"TAMIS_PROFILES": "on", "TAMIS_PROFILE_DIR": str(place / "profiles")}
    sets = ("--set", "input=in", "--set", "output=out", "--memory", "512MB")
    first = planned("copy", *sets, "--probe-mb", "0.5", cwd=place, **on)
    assert [p.name[13:] for p in (place / "profiles").iterdir()] == ["ranges.json"]  # a probe is not an experience
    assert first["probe_bytes"] > 0
    assert tamis("run", "copy", *sets, "-q", cwd=place, **on).returncode == 0
    plan = planned("copy", *sets, cwd=place, **on)
    assert (plan["basis"], plan["probe_bytes"], plan["kept_share"]) == (
        "machine profile: 1 earlier run of this pipeline on this machine",
        0,
        None,
    )
    took = json.loads((run_dir_path(place / "out") / "manifest.json").read_text())["prediction"]["peak_bytes"][
        "measured"
    ]
    assert plan["forecast"]["peak_bytes"]["low"] <= took <= plan["forecast"]["peak_bytes"]["high"]


def test_without_data_and_for_another_machine(place: Path) -> None:
    one = planned("copy", "--dataset-bytes", "8TB", "--machine", "64GB,32cores", cwd=place)
    assert (one["n_files"], one["decoded_bytes"], one["budget_bytes"], one["n_workers"]) == (
        0,
        8 * 10**12,
        51_200_000_000,
        32,
    )
    assert (one["free_bytes"], one["machine"], one["guide"]["nodes"]) == (None, "64 GB, 32 cores", "8 or more")
    assert one["basis"].startswith("starting table")
    ten = planned("copy", "--dataset-bytes", "8TB", "--cluster", "10x64GB,32cores", cwd=place)
    assert ten["nodes"] == 10
    assert ten["forecast"]["seconds"]["expected"] == pytest.approx(one["seconds"] / 10, rel=0.05)
    assert (ten["cluster"]["limited_by"], ten["cluster"]["nodes"]) == (
        "driver",
        10,
    )  # a copy is faster than one driver books it
    assert ten["seconds"] == pytest.approx(ten["n_partitions"] * 0.0013, rel=0.05)
    assert ten["forecast"]["peak_bytes"] == one["forecast"]["peak_bytes"]  # of one node


def test_deduplication_is_planned_too(place: Path) -> None:
    plan = planned("dedup", "fuzzy", "in", "--memory", "512MB", "--set", "num_bands=10", cwd=place)
    assert (plan["n_files"], plan["n_bands"], sorted(plan["guide"])) == (3, 10, ["gpus", "memory", "nodes"])
    assert plan["forecast"]["peak_bytes"]["high"] <= 512_000_000
    big = planned(
        "dedup", "fuzzy", "--dataset-bytes", "1TB", "--avg-doc-bytes", "2kB", "--machine", "64GB,32cores", cwd=place
    )
    assert (big["n_documents"], big["bands_per_pass"]) == (500_000_000, 20)
    assert big["original_formula_bytes"] == 8 * 20 * 13 * 500_000_000
    fuzzy = ("plan", "dedup", "fuzzy", "in", "--memory", "512MB")
    one = tamis(*fuzzy, "--set", "bands_per_iteration=1", cwd=place).stdout
    assert "1 of 20: reads the input 20 times for keys instead of once; saves" in " ".join(one.split())
    assert "bands_per_iteration" not in one
    text = tamis("plan", "dedup", "exact", "in", "--memory", "512MB", cwd=place)
    assert text.returncode == 0, text.stderr
    assert "peak memory" in text.stdout
    assert "starting table" in text.stdout


@pytest.mark.own_processes
def test_plan_and_run_of_a_deduplication_name_the_same_smallest_budget(place: Path) -> None:
    """To one step: where the measured figure lies next to the border of two steps, it falls to either side of it."""
    done = tamis("plan", "dedup", "exact", "in", "--memory", "20MB", "--json", cwd=place)
    plan = json.loads(done.stdout)
    assert (done.returncode, plan["fits"]) == (4, False)
    refused = tamis("dedup", "exact", "in", "out", "--memory", "20MB", "-q", cwd=place)
    named = re.search(r"(\d+)MB\s*$", refused.stderr)
    assert named is not None, refused.stderr
    assert abs(int(named[1]) * 10**6 - plan["smallest_budget_bytes"]) <= STEP_BYTES
    assert not (place / "out").exists()


@pytest.mark.parametrize("what", [["dedup", "fuzzy", "in"], ["minimal", "--set", "input=in", "--set", "output=out"]])
def test_a_budget_that_is_too_small_by_the_table(what: list[str], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    done = CliRunner().invoke(app, ["plan", *what, "--memory", "150MB", "--no-probe"])
    assert (done.exit_code, "the budget is too small: give --memory 160MB or more" in done.stdout) == (4, True)
    done = CliRunner().invoke(app, ["plan", *what, "--memory", "160MB", "--no-probe"])
    told = "160 MB; the smallest that works is about 160 MB by the starting table, without models"
    assert (done.exit_code, told in done.stdout) == (0, True)


def test_the_budget_of_a_curation_is_that_of_its_recipe(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    words = ["plan", "minimal", "--set", "input=in", "--set", "output=out", "--set", "settings.memory=100MB"]
    done = CliRunner().invoke(app, [*words, "--workers", "1", "--no-probe", "--json"])
    plan = json.loads(done.stdout)
    assert (done.exit_code, plan["budget_bytes"], plan["fits"]) == (4, 100_000_000, False)
    assert all(cost["seconds"] == cost["cpu_s"] for cost in plan["costs"])  # on one worker


@pytest.mark.parametrize(
    ("what", "option", "of"),
    [
        (["dedup", "exact", "in"], ["--blocksize", "1MB"], "dedup"),
        (["dedup", "exact", "in"], ["--allow-module", "os"], "dedup"),
        (["dedup", "exact", "in"], ["--trust-remote-code"], "dedup"),
        (["dedup_exact", "--set", "input=in", "--set", "output=out"], ["--probe"], "a recipe with a workflow"),
        (["minimal", "--set", "input=in", "--set", "output=out"], ["--scratch", "."], "a recipe with steps"),
        (["minimal", "--set", "input=in", "--set", "output=out"], ["--probe-mb", "1"], "a recipe with steps"),
    ],
)
def test_options_that_a_plan_would_not_follow_are_refused(
    what: list[str], option: list[str], of: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    done = CliRunner().invoke(app, ["plan", *what, *option])
    assert (done.exit_code, done.stderr) == (
        2,
        f"error: tamis plan: {option[0]} changes nothing in the plan of {of}; leave it out\n",
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["copy", "--machine", "64GB"], "expected memory and cores"),
        (["copy", "--machine", "64GB,x"], "cannot read 'x'"),
        (["copy", "--cluster", "64GB,32cores"], "expected the number of nodes"),
        (["copy", "--machine", "1GB,1core", "--cluster", "2x1GB,1core"], "--machine or --cluster, not both"),
        (["copy", "--avg-doc-bytes", "2kB"], "--avg-doc-bytes is for --dataset-bytes"),
        (["copy", "--dataset-bytes", "lots"], "--dataset-bytes: cannot read 'lots'"),
        (["copy", "--dataset-bytes", "1GB", "--probe"], "--probe needs data"),
        (["copy", "more"], "give one recipe"),
        (["copy", "--set", "input=in", "--set", "output=out", "--scratch", "in"], "scratch: in is inside the input"),
        (["dedup"], "expected: tamis plan dedup exact|fuzzy|substrings IN"),
        (["dedup", "exact"], "give the input"),
        (["dedup", "fuzzy", "in", "--set", "nonsense=1"], "unexpected keyword argument 'nonsense'"),
    ],
)
def test_mistakes(args: list[str], message: str, place: Path) -> None:
    done = tamis("plan", *args, cwd=place)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_of_each_file_enough_is_tried_however_small_the_sample(place: Path, tmp_path: Path) -> None:
    (tmp_path / "heads").mkdir()
    paths = [str(place / "in" / name) for name in ("a.jsonl", "b.jsonl.gz", "c.parquet")]
    assert all(head["n_bytes"] > 50_000 for head in take(paths, str(tmp_path / "heads"), 1000))
    whole = take(paths, str(tmp_path / "heads"), 1000, formats=("text",))  # files that are read whole, each
    assert [head["n_bytes"] for head in whole] == [os.path.getsize(path) for path in paths]
    (sample, *_) = take(paths, str(tmp_path / "heads"), 3000, packed=True)  # a sample is as small as it is asked for
    assert sample["n_bytes"] <= 1000


@pytest.mark.parametrize("command", ["plan", "profile"])
def test_recipes_without_input_files_are_refused_by_the_name_of_the_command(command: str, place: Path) -> None:
    (place / "made.py").write_text(
        "from dataclasses import dataclass\nfrom tamis import ProcessingStage\n\n@dataclass\nclass "
        "Made(ProcessingStage):\n"
        "    name: str = 'made'\n    is_source_stage: bool = True\n\n    def process(self, task):\n        return "
        "None\n"
    )
    (place / "made.yaml").write_text(
        "name: made\nstages:\n  - _target_: made.Made\n  - _target_: tamis.stages.text.io.writer.JsonlWriter\n    "
        "path: out\n"
    )
    done = tamis(command, "made.yaml", "--allow-module", "made", cwd=place)
    assert done.returncode == 2
    assert (
        f"{command} works for recipes that begin with a reader of files, and this one begins with made" in done.stderr
    )


def test_a_probe_that_fails_is_reported_with_what_failed(place: Path) -> None:
    (place / "bad.py").write_text(
        "from dataclasses import dataclass\nfrom tamis import ProcessingStage\n\n@dataclass\nclass "
        "Bad(ProcessingStage):\n"
        "    name: str = 'bad'\n\n    def setup(self, worker=None):\n        raise RuntimeError('no setup')\n\n"
        "    def process(self, batch):\n        return batch\n"
    )
    (place / "bad.yaml").write_text(
        "name: bad\nstages:\n  - _target_: tamis.stages.text.io.reader.DocumentReader\n    file_paths: in\n  - "
        "_target_: bad.Bad\n"
        "  - _target_: tamis.stages.text.io.writer.JsonlWriter\n    path: out\n"
    )
    done = tamis("plan", "bad.yaml", "--allow-module", "bad", "--memory", "512MB", "--probe-mb", "0.2", cwd=place)
    assert (done.returncode, done.stdout) == (7, "")
    assert "stage 'bad (its setup)': RuntimeError: no setup" in done.stderr
    assert done.stderr.count("Traceback") == 1  # of the stage, not of Tamis
    assert 'bad.py", line 9, in setup' in done.stderr


def test_a_plan_continues_when_the_shell_that_began_it_is_gone(place: Path) -> None:
    code = "import itertools, os, tamis.cli.start\nos.getppid = itertools.count(2).__next__\ntamis.cli.start.main()"
    args = (
        "plan",
        "copy",
        "--set",
        "input=in",
        "--set",
        "output=out",
        "--memory",
        "512MB",
        "--probe",
        "--probe-mb",
        "0.2",
    )
    env = {**os.environ, "PYTHONPATH": str(SRC), "TAMIS_PROFILE_DIR": str(place / "none")}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=place, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "peak memory" in done.stdout


def test_a_plan_by_the_table_is_not_tried(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--plan` of a curation starts nothing: its stages may have models that would have to be fetched."""
    monkeypatch.chdir(place)
    monkeypatch.setattr("tamis.cli.plan.smallest._refused_budget", lambda begin: pytest.fail("something was started"))
    done = CliRunner().invoke(
        app, ["curate", "in", "out", "--preset", "minimal", "--plan", "--json", "--memory", "1GB"]
    )
    plan = json.loads(done.stdout)
    assert (done.exit_code, plan["smallest_is_measured"], plan["fits"]) == (0, False, True)


def test_a_probe_that_is_not_wanted_has_no_size(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    words = ["plan", "copy", "--set", "input=in", "--set", "output=out", "--no-probe", "--probe-mb", "5"]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stderr) == (2, "error: give --probe-mb or --no-probe, not both\n")
