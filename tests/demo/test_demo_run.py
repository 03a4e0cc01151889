"""`tamis demo` finds what it planted, and says so when it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from tamis import DocumentBatch
from tamis.cli.demo import compare
from tamis.demo.corpus import load
from tamis.demo.stages import DropJunk, DropMissing, DropNonString, DropNull
from tamis.formats.jsonl import JsonlBlock

SRC = Path(__file__).parents[2] / "src"


def demo(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "tamis.cli.main", "demo", "--size", "3MB", *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=110, check=False)


def test_the_demo(tmp_path: Path) -> None:
    done = demo(cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything that was planted was found" in done.stdout
    assert (tmp_path / "demo-output/result/_tamis/report.html").exists()
    again = demo("--json", cwd=tmp_path)
    about = json.loads(again.stdout)
    assert (again.returncode, about["demo"]) == (0, "passed")
    assert all(c["planted"] == c["found"] for c in about["checks"])
    assert len(about["checks"]) == 10
    other = demo("--size", "4MB", cwd=tmp_path)
    assert (other.returncode, "holds a demo of 3 MB" in other.stderr) == (5, True)
    planted = load(tmp_path / "demo-output")
    assert planted is not None
    about["stages"][3]["n_out"] += 1
    assert [what for what, a, b in compare(planted, about) if a != b] == ["junk: dropped"]


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "demo-output").mkdir()
    (tmp_path / "demo-output/mine.txt").write_text("mine")
    done = demo(cwd=tmp_path)
    assert (done.returncode, "is not empty and holds no demo" in done.stderr) == (5, True)
    assert [p.name for p in (tmp_path / "demo-output").iterdir()] == ["mine.txt"]


def batch(raw: bytes) -> DocumentBatch:
    block = JsonlBlock.parse(np.frombuffer(raw, np.uint8), ["text"])
    return DocumentBatch.over(block, np.arange(block.n_rows))


def test_stages_tell_missing_null_and_other_values_apart() -> None:
    documents = batch(
        b'{"text": "a"}\n{"n": 1}\n{"text": null}\n{"text": 5}\n{"text": ["b"]}\n{"text": "--"}\n{"text": "\\u00e9"}\n'
    )
    assert documents.kinds("text").tolist() == [2, 0, 1, 3, 3, 2, 2]
    for stage, rows in (
        (DropMissing(), [0, 2, 3, 4, 5, 6]),
        (DropNull(), [0, 3, 4, 5, 6]),
        (DropNonString(), [0, 5, 6]),
        (DropJunk(), [0, 6]),
    ):
        documents = stage.process(documents)
        assert documents.serial.tolist() == rows


def test_kinds_of_tables_and_new_columns() -> None:
    table = DocumentBatch(data=pa.table({"text": ["a", None], "n": [1, 2]}))
    assert table.kinds("text").tolist() == [2, 1]
    assert table.kinds("n").tolist() == [3, 3]
    assert table.kinds("gone").tolist() == [0, 0]
    documents = batch(b'{"text": 5}\n{"text": "x"}\n').with_column("text", ["5", None])
    assert documents.kinds("text").tolist() == [2, 1]


def test_junk_where_no_document_has_text() -> None:
    assert DropJunk().process(batch(b'{"text": null}\n{"n": 1}\n')).num_items == 0
