"""`tamis profile`: configurations tried on a sample, and the machine's profiles."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.cli.plan.input_heads import take
from tamis.cli.profile.trying import configurations
from tamis.errors import UsageError
from tests.support.warm_python import run_python

SRC = Path(__file__).parents[2] / "src"
RECIPE = """# kept
name: copy
stages:
  - _target_: tamis.stages.text.io.reader.DocumentReader
    file_paths: in
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: out
settings:
  workers: 1  # one is enough
"""


def environment(place: Path) -> dict[str, str]:
    (place / "tmp").mkdir(exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": str(SRC),
        "TAMIS_PROFILES": "on",
        "TAMIS_PROFILE_DIR": str(place / "profiles"),
        "TMPDIR": str(place / "tmp"),
    }


def tamis(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "tamis.cli.start", *args, env=environment(cwd), cwd=cwd)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    lines = "".join(json.dumps({"id": i, "text": f"document {i} " * 20}) + "\n" for i in range(4000))
    (tmp_path / "in/a.jsonl").write_text(lines)
    (tmp_path / "in/b.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path


def test_configurations_are_tried_and_one_is_recommended_and_written(place: Path) -> None:
    done = tamis(
        "profile",
        "mine.yaml",
        "--budgets",
        "512MB,20MB",
        "--blocksizes",
        "auto,1MB",
        "--limit-bytes",
        "1MB",
        "--plot",
        "p.svg",
        "--write",
        "--json",
        cwd=place,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = found["configurations"]
    assert [(r["budget_bytes"], r["blocksize"], r["status"]) for r in rows] == [
        (20_000_000, "auto", "infeasible"),
        (20_000_000, "1MB", "infeasible"),
        (512_000_000, "auto", "ok"),
        (512_000_000, "1MB", "ok"),
    ]
    assert "the smallest that works here is" in rows[0]["message"]
    assert all(0 < r["peak_bytes"] <= 512_000_000 and r["mb_per_s"] > 0 and r["cpu_s"] > 0 for r in rows[2:])
    assert (rows[2]["n_workers"], rows[2]["failures"]) == (1, 0)
    assert 900_000 <= found["sample_bytes"] <= 1_100_000
    settings = found["recommended"]["settings"]
    assert settings["memory"] == "512MB"
    block = "" if settings["blocksize"] is None else "  blocksize: 1MB\n"
    assert (place / "mine.yaml").read_text() == RECIPE + "  memory: 512MB\n" + block
    assert (place / "p.svg").read_text().startswith("<svg")
    assert sorted(p.name for p in place.iterdir()) == ["in", "mine.yaml", "p.svg", "tmp"]  # no output, no profile
    assert list((place / "tmp").iterdir()) == []


def test_when_nothing_works_it_says_so(place: Path) -> None:
    done = tamis("profile", "mine.yaml", "--budgets", "20MB", "--blocksizes", "auto", "--write", cwd=place)
    assert done.returncode == 4
    assert "infeasible" in done.stdout
    assert "no configuration worked" in done.stdout
    assert (place / "mine.yaml").read_text() == RECIPE


def test_a_stage_that_fails_on_everything_ends_early(place: Path) -> None:
    (place / "bad.py").write_text(
        "from dataclasses import dataclass\nfrom tamis import ProcessingStage\n\n@dataclass\nclass "
        "Bad(ProcessingStage):\n"
        "    name: str = 'bad'\n\n    def process(self, batch):\n        raise RuntimeError('never works')\n"
    )
    (place / "bad.yaml").write_text(
        RECIPE.replace(
            "  - _target_: tamis.stages.text.io.w", "  - _target_: bad.Bad\n  - _target_: tamis.stages.text.io.w"
        )
    )
    done = tamis(
        "profile",
        "bad.yaml",
        "--allow-module",
        "bad",
        "--budgets",
        "512MB",
        "--blocksizes",
        "auto",
        "--limit-bytes",
        "300kB",
        cwd=place,
    )
    assert done.returncode == 4
    assert "stage 'bad' fails on" in done.stdout
    assert "Traceback" not in done.stderr


def test_interrupted_it_leaves_nothing(place: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tamis.cli.start",
        "profile",
        "mine.yaml",
        "--budgets",
        "512MB",
        "--blocksizes",
        "auto",
        "--repeat",
        "20",
    ]
    with subprocess.Popen(
        command, env=environment(place), cwd=place, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while not list((place / "tmp").glob("**/lock")):
            assert time.monotonic() < deadline, "no run began"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=40)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted"
    assert list((place / "tmp").iterdir()) == []
    left = [p for p in Path("/proc").iterdir() if p.name.isdecimal() and _works_in(p, place)]
    assert left == []


def _works_in(process: Path, place: Path) -> bool:
    try:
        return os.readlink(process / "cwd").startswith(str(place)) and (process / "stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["copy", "--write", "--set", "input=in", "--set", "output=o"], "ships with Tamis and is not changed"),
        (["mine.yaml", "--budgets", "lots"], "--budgets: cannot read 'lots'"),
        (["mine.yaml", "--budgets", ","], "give at least one budget"),
        (["mine.yaml", "--blocksizes", "x"], "--blocksizes: cannot read 'x'"),
        (["mine.yaml", "--plot", "p.png"], "ends in .svg or .html"),
        (["mine.yaml", "--plot", "no/such/p.svg"], "there is no folder"),
        (["mine.yaml", "--sample", "1%", "--limit-bytes", "1MB"], "--sample or --limit-bytes, not both"),
        (["nonsense"], "no such recipe: nonsense"),
        (["./list"], "cannot read the recipe"),
    ],
)
def test_mistakes(args: list[str], message: str, place: Path) -> None:
    done = tamis("profile", *args, cwd=place)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_recipe_called_like_a_command_is_given_with_its_folder(place: Path) -> None:
    (place / "list").write_text(RECIPE)
    done = tamis("profile", "./list", "--budgets", "20MB", "--blocksizes", "auto", cwd=place)
    assert "infeasible" in done.stdout
    assert "no profiles yet" in tamis("profile", "list", cwd=place).stdout


def test_too_many_runs_are_refused() -> None:
    with pytest.raises(UsageError, match="400 runs are too many"):
        configurations(",".join(f"{i}GB" for i in range(1, 21)), "auto,1MB", 10)


def test_profiles_are_listed_and_shown(place: Path) -> None:
    assert tamis("run", "mine.yaml", "--memory", "512MB", "-q", cwd=place).returncode == 0
    listed = json.loads(tamis("profile", "list", "--json", cwd=place).stdout)
    (one,) = listed["profiles"]
    assert (one["name"], one["n_runs"], one["here"]) == ("copy", 1, True)
    assert "copy" in tamis("profile", "list", cwd=place).stdout
    shown = tamis("profile", "show", "copy", cwd=place).stdout
    assert "segment 0 peak =" in shown
    assert "512 MB" in shown


def test_a_damaged_profile_is_listed_as_such(place: Path) -> None:
    (place / "profiles").mkdir()
    (place / "profiles/000000000000-abc.json").write_bytes(b"\x00\x1b[2J")
    done = tamis("profile", "list", cwd=place)
    assert done.returncode == 0
    assert "damaged" in done.stdout


def test_samples_keep_their_format(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    lines = "".join(json.dumps({"id": i, "text": "x" * 80}) + "\n" for i in range(5000)).encode()
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "c.jsonl.bz2").write_bytes(bz2.compress(lines))
    (tmp_path / "d.jsonl.xz").write_bytes(lzma.compress(lines))
    pq.write_table(
        pa.table({"id": list(range(5000)), "text": ["x" * 80] * 5000}), tmp_path / "e.parquet", row_group_size=500
    )
    paths = [
        str(tmp_path / n) for n in ("a.jsonl", "b.jsonl.gz", "c.jsonl.bz2", "d.jsonl.xz", "e.parquet", "gone.jsonl")
    ]
    *found, gone = take(paths, str(tmp_path / "s"), 600_000, packed=True)
    copies = [made["copy"] for made in found]
    kinds = [os.path.basename(p).partition(".")[2] for p in copies]
    assert kinds == ["jsonl", "jsonl.gz", "jsonl.bz2", "jsonl.xz", "parquet"]
    plain = [Path(copies[0]).read_bytes()] + [
        opener(Path(p).read_bytes())
        for opener, p in zip((gzip.decompress, bz2.decompress, lzma.decompress), copies[1:4], strict=True)
    ]
    assert all(lines.startswith(p) and p.endswith(b"\n") and 90_000 <= len(p) <= 160_000 for p in plain)
    assert pq.ParquetFile(copies[4]).metadata.row_group(0).num_rows == 500
    assert [made["n_bytes"] for made in found[:4]] == [len(p) for p in plain]
    assert "No such file" in gone["error"]


def test_small_inputs_are_taken_whole(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "a.jsonl").write_bytes(b'{"id": 1}\n{"id": 2}')
    (found,) = take([str(tmp_path / "a.jsonl")], str(tmp_path / "s"), 10**6)
    assert Path(found["copy"]).read_bytes() == b'{"id": 1}\n{"id": 2}'
