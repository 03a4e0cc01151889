"""`tamis dedup lines`: what it writes, what it says, mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support import command
from tests.support.run_dirs import run_dir_path

LINE = "Accept our cookies to go on reading this page"


def tamis(*args: str) -> Any:
    """Run the command with a budget."""
    return command.tamis("dedup", "lines", *args, "--memory", "512MB", "--workers", "1")


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    texts = [f"one\n{LINE}", f"{LINE.upper()}\n\ntwo", LINE, "three"]
    (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    return str(tmp_path / "in")


def written(folder: Path) -> list[str]:
    (path,) = folder.glob("*.jsonl")
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def test_lines_are_cut_and_counted(source: str, tmp_path: Path) -> None:
    done = tamis(source, str(tmp_path / "out"), "--json")
    assert done.exit_code == 0, done.output
    about = json.loads(done.stdout)
    assert written(tmp_path / "out") == [f"one\n{LINE}", "\ntwo", "three"]
    counts = {k: about[k] for k in ("n_documents", "n_units", "n_long_enough", "n_duplicates", "n_edited", "n_dropped")}
    assert counts == {
        "n_documents": 4,
        "n_units": 7,
        "n_long_enough": 3,
        "n_duplicates": 2,
        "n_edited": 2,
        "n_dropped": 1,
    }
    assert about["cut_bytes"] == 2 * len(LINE) + 1
    (most,) = pq.read_table(about["duplicates"]).to_pylist()
    assert most == {"id": "000000_0", "unit": 1, "n_occurrences": 3, "path": f"{source}/a.jsonl"}
    assert (run_dir_path(tmp_path / "out") / "report.html").exists()


def test_what_it_prints(source: str, tmp_path: Path) -> None:
    arguments = [source, str(tmp_path / "out"), "--unit", "paragraph", "--cut-all", "--cut-field", "cut", "-q"]
    done = tamis(*arguments)
    assert done.exit_code == 0, done.output
    assert written(tmp_path / "out") == [f"one\n{LINE}", "two", "three"]
    told = " ".join(done.stdout.split())
    assert "Repeated paragraphs" in told
    assert "repeated, cut 2 (66.7%)" in told
    assert "dropped, too little left 1" in told
    again = tamis(*arguments)
    assert "finished earlier, nothing to do: 2 of 3 paragraphs repeat others" in " ".join(again.stdout.split())


def test_finding_only(source: str, tmp_path: Path) -> None:
    done = tamis(source, str(tmp_path / "out"), "--find-only", "-q")
    assert done.exit_code == 0, done.output
    assert "repeated 2 (66.7%)" in " ".join(done.stdout.split())
    assert list((tmp_path / "out").glob("*.jsonl")) == []


def test_mistakes(source: str, tmp_path: Path) -> None:
    done = tamis(source, str(tmp_path / "out"), "--unit", "word")
    assert done.exit_code == 2
    assert "unit must be one of line, paragraph" in done.output
