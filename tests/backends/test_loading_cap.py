"""Stages are loaded inside the budget: what takes more is refused with a number before it is there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.command import SRC
from tests.support.outside import measured

MB = 1_000_000
STAGE = """
import ctypes, os, sys, time
from tamis import Pipeline, ProcessingStage
from tamis.errors import TamisError
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter


class Loads(ProcessingStage):
    name = "loads"

    def __init__(self, how, n_bytes, folder):
        self.how, self.n_bytes, self.folder = how, n_bytes, folder

    def setup_on_node(self, node_info=None, worker_metadata=None):
        getattr(self, self.how)()

    def steps(self):
        self.kept = [b"x" * 4_000_000 for _ in range(self.n_bytes // 4_000_000)]

    def child(self):
        pid = os.fork()
        if not pid:
            try:
                self.steps()
            finally:
                os._exit(0 if hasattr(self, "kept") else 1)
        if os.waitpid(pid, 0)[1]:
            raise MemoryError("a child of the stage failed")

    def abort(self):  # as libraries written in Rust
        try:
            self.steps()
        except MemoryError:
            print("memory allocation of 4000000 bytes failed", file=sys.stderr, flush=True)
            os.abort()

    def mapped(self):  # pages of a file, which no limit on private memory counts
        import mmap
        with open(self.folder + "/large", "rb") as file:
            self.kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        for offset in range(0, len(self.kept), 4096 * 64):
            self.kept[offset:offset + 4096 * 64]
            time.sleep(0.0005)

    def fault(self):
        raise ValueError("no such table")

    def process(self, task):
        return task


if __name__ == "__main__":
    import loads
    how, folder, n_bytes, memory = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    stages = [JsonlReader(folder + "/in.jsonl"), loads.Loads(how, n_bytes, folder), JsonlWriter(folder + "/out")]
    try:
        Pipeline("p", stages=stages).execute(memory=memory, count_caller=True)
    except TamisError as exc:
        print(exc)
        sys.exit(exc.exit_code)
"""
NUMBER = re.compile(r"a memory budget of 260 MB is too small: .* the smallest that may work is (\d+)MB")


def loaded(tmp_path: Path, how: str, n_bytes: int, memory: str = "260MB") -> tuple[int, int, str]:
    """Run a pipeline whose stage loads so much; return its exit status, the peak of its processes, and its output."""
    (tmp_path / "loads.py").write_text(STAGE)
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": "a"}) + "\n")
    command = [sys.executable, str(tmp_path / "loads.py"), how, str(tmp_path), str(n_bytes), memory]
    seen = measured(command, PYTHONPATH=f"{SRC}:{tmp_path}")
    return seen.status, seen.peak_bytes, seen.output


@pytest.mark.parametrize("how", ["steps", "child", "abort"])
def test_what_does_not_fit_is_refused_before_it_is_loaded(tmp_path: Path, how: str) -> None:
    status, peak_bytes, output = loaded(tmp_path, how, 600 * MB)
    assert status == 4, output
    assert peak_bytes <= 260 * MB
    named = NUMBER.search(" ".join(output.split()))
    assert named is not None, output
    assert 260 < int(named[1]) < 600


def test_the_stage_that_takes_too_much_is_named(tmp_path: Path) -> None:
    assert "loading stage 'loads' takes more than the rest" in loaded(tmp_path, "steps", 600 * MB)[2]


def test_what_fits_is_loaded(tmp_path: Path) -> None:
    status, peak_bytes, output = loaded(tmp_path, "steps", 40 * MB, "400MB")
    assert status == 0, output
    assert peak_bytes <= 400 * MB


def test_other_failures_are_none_of_the_budget(tmp_path: Path) -> None:
    status, _, output = loaded(tmp_path, "fault", 0)
    assert status == 2
    assert "ValueError: no such table" in output


def test_pages_of_files_count_as_well(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        for _ in range(60):
            file.write(b"x" * (10 * MB))
    status, peak_bytes, output = loaded(tmp_path, "mapped", 0)
    assert status == 4, output
    assert NUMBER.search(" ".join(output.split())) is not None
    assert peak_bytes <= 300 * MB  # seen and ended between two samples
