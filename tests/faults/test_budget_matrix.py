"""No command exceeds its budget, whatever its job and history: every cell of the matrix, seen from outside."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tamis.memory.budget import describe_limits
from tests.support.budget_cells import BUDGETS, HOSTILE, JOBS, REFUSED, Cell, make_input, outcome, run_cells

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
needs_gate = pytest.mark.skipif("gate" not in describe_limits()["enforcement"], reason="no seccomp notifications here")
_INPUT_BYTES, _FEW_BYTES = 60_000_000, 400_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("matrix") / "in"
    make_input(folder, _INPUT_BYTES)
    return folder


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a few documents, and a home with kernels in it: a hostile stage needs no more."""
    folder = tmp_path_factory.mktemp("hostile")
    make_input(folder / "in", _FEW_BYTES)
    assert [cell.status for cell in run_cells("copy", BUDGETS[-1], folder / "in", folder)] == [0, 0]
    return folder / "in", folder / "home"


def _check(cell: Cell) -> None:
    when = "first" if cell.is_first else "later"
    print(f"{cell.job}, {cell.budget}, {when}: {cell.peak_bytes / 1e6:.1f} MB, {outcome(cell)}, {cell.seconds} s")
    assert cell.fits, (cell.peak_bytes, cell.output[-2000:])
    assert cell.left == []


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("job", JOBS)
def test_an_ordinary_job_stays_inside_the_budget_the_first_time_and_later(
    source: Path, tmp_path: Path, job: str, budget: str
) -> None:
    for cell in run_cells(job, budget, source, tmp_path):
        _check(cell)
        assert cell.status == 0, cell.output[-2000:]


@needs_gate
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_stage_stays_inside_the_budget_and_leaves_nothing(
    few: tuple[Path, Path], tmp_path: Path, kind: str, budget: str
) -> None:
    """Each wants twice its budget: it is refused with a number, or goes on with less, or its children fail."""
    source, home = few
    before = set(os.listdir("/dev/shm"))
    for cell in run_cells(kind, budget, source, tmp_path, home):
        _check(cell)
        assert cell.status in ((3, 4) if kind in REFUSED else (0, 3, 4)), cell.output[-2000:]
        assert "--memory" in cell.output or kind not in REFUSED
        deadline_s = time.monotonic() + 20
        while (left := set(os.listdir("/dev/shm")) - before) and time.monotonic() < deadline_s:
            time.sleep(0.1)  # others of this machine may use it meanwhile
        assert left == set()
