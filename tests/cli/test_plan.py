"""`tamis plan`: what a run would take, without touching the output."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.cli.heads import copy_heads

SRC = Path(__file__).parents[2] / "src"


def tamis(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "tamis.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=100, check=False)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    lines = "".join(json.dumps({"id": i, "text": f"document {i} " * 20}) + "\n" for i in range(2000)).encode()
    (tmp_path / "in/a.jsonl").write_bytes(lines)
    (tmp_path / "in/b.jsonl.gz").write_bytes(gzip.compress(lines))
    pq.write_table(pa.table({"id": list(range(2000)), "text": ["some text " * 20] * 2000}), tmp_path / "in/c.parquet")
    return tmp_path


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
    assert plan["smallest_budget_bytes"] * 0.5 < plan["peak_bytes"] <= plan["budget_bytes"]
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
    heads = copy_heads(paths, str(tmp_path / "heads"), 400_000)
    first = Path(heads[0]["head"]).read_bytes()
    assert (place / "in/a.jsonl").read_bytes().startswith(first)
    assert (first[-1:], heads[0]["ratio"]) == (b"\n", 1.0)
    assert 90_000 < len(first) <= 100_000
    assert Path(heads[1]["head"]).read_bytes() == first
    assert heads[1]["ratio"] > 4
    assert pq.read_table(heads[2]["head"]).column_names == ["id", "text"]
    assert "No such file" in heads[3]["error"]
