"""The budget as somebody outside sees it: hostile stages of every kind, and ordinary jobs, each with several budgets."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from outside import measured

from tamis.memory.budget import describe_limits

pytestmark = pytest.mark.slow
needs_gate = pytest.mark.skipif("gate" not in describe_limits()["enforcement"], reason="no seccomp notifications here")
BUDGETS = (300, 512, 1000)
CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus"

# What ends in a refusal; the others go on with less, or leave their children to fail.
REFUSED = (
    "mapped_file", "shared_map", "shared_memory", "many_small_maps", "forks", "pool", "rewriting", "mapping_children",
    "programs", "unmapped_file", "nameless_file",
)  # fmt: skip


@needs_gate
@pytest.mark.parametrize("budget_mb", BUDGETS)
@pytest.mark.parametrize("kind", [*REFUSED, "generations", "daemons"])
def test_a_hostile_stage_stays_inside_the_budget_and_leaves_nothing(kind: str, budget_mb: int, tmp_path: Path) -> None:
    mb = budget_mb * 5 // 2
    if kind == "mapped_file":
        with open(tmp_path / "big", "wb") as file:
            for _ in range(mb):
                file.write(os.urandom(1 << 10) * 977)  # no holes: all of it can be in memory
    before = set(os.listdir("/dev/shm"))
    script = str(Path(__file__).with_name("hostile_run.py"))
    seen = measured([sys.executable, script, kind, str(mb), f"{budget_mb}MB", str(tmp_path)], timeout_s=200)
    left = set(os.listdir("/dev/shm")) - before
    shutil.rmtree(tmp_path)
    print(f"{kind} {budget_mb} MB: {seen.peak_bytes / 1e6:.1f} MB, {seen.seconds:.1f} s, status {seen.status}")
    assert seen.peak_bytes <= budget_mb * 10**6
    assert seen.left == []
    assert left == set()
    assert seen.status in ((3, 4) if kind in REFUSED else (0, 3, 4)), seen.output[-2000:]
    assert "--memory" in seen.output or kind not in REFUSED


JOBS = {
    "copy": ["run", "copy", "--set", "input={input}", "--set", "output={output}"],
    "english": ["run", "heuristic_english", "--set", "input={input}", "--set", "output={output}"],
    "exact": ["dedup", "exact", "{input}", "{output}"],
    "fuzzy": ["dedup", "fuzzy", "{input}", "{output}"],
    "lines": ["dedup", "lines", "{input}", "{output}"],
}


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no texts in {CORPUS}")
@pytest.mark.parametrize("budget_mb", BUDGETS)
@pytest.mark.parametrize("job", JOBS)
def test_an_ordinary_job_stays_inside_the_budget_the_first_time_and_later(
    job: str, budget_mb: int, tmp_path: Path
) -> None:
    for run in ("first", "later"):  # the first one finds no profile of this machine
        words = [word.format(input=CORPUS, output=tmp_path / run) for word in JOBS[job]]
        command = [sys.executable, "-m", "tamis.cli.main", *words, "--memory", f"{budget_mb}MB"]
        seen = measured(command, timeout_s=300, TAMIS_PROFILE_DIR=str(tmp_path / "profiles"))
        print(f"{job} {budget_mb} MB, {run}: {seen.peak_bytes / 1e6:.1f} MB, {seen.seconds:.1f} s")
        assert seen.status == 0, seen.output[-2000:]
        assert seen.peak_bytes <= budget_mb * 10**6
        assert seen.left == []
