"""Figures of the budget matrix: `make bench-budget`, or `python benchmarks/budget.py [--only JOB ...] [--keep FILE]`.

Every job under every budget, as a first and as a later run, seen from outside (tests/support/budget_cells.py). Without
--only it writes benchmarks-budget.md. `--keep`: cells are kept in this file, and those that are there already are
not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from figures import write_page
from tests.support.budget_cells import BUDGETS, HOSTILE, JOBS, Cell, make_input, outcome, run_cells

INPUT_BYTES = 60_000_000
HOSTILE_BYTES = (
    400_000  # what a hostile stage takes does not depend on the documents, and every attempt is held for a while
)
ABOUT = f"""\
Written by `make bench-budget`; the cells are those of `make torture` (tests/faults/test_budget_matrix.py), which fails
if one is over its budget.

The peak is the largest sum of proportional set sizes of all processes of a command, from its first to its
last moment, taken by a program outside that samples as fast as it can. A first run finds neither compiled kernels nor
anything learned, a later one both (for hostile stages a first run finds kernels; compiling them is the same as for a
copy). Input: {INPUT_BYTES // 10**6} MB of text in JSONL, zstd and Parquet files.\
"""


def measure(jobs: list[str], kept: Path | None) -> dict[tuple[str, str, bool], Cell]:
    """Cells by job, budget, and whether it is the first run."""
    found: dict[tuple[str, str, bool], Cell] = {}
    for line in kept.read_text().splitlines() if kept is not None and kept.exists() else ():
        cell = Cell(**json.loads(line))
        found[cell.job, cell.budget, cell.is_first] = cell
    with tempfile.TemporaryDirectory(prefix="tamis-budget-") as name:
        folder = Path(name)
        make_input(folder / "in", INPUT_BYTES)
        make_input(folder / "few", HOSTILE_BYTES)
        home: Path | None = None  # with kernels, for hostile stages
        for budget in BUDGETS:
            for job in jobs:
                if (job, budget, False) in found:
                    continue
                if job in HOSTILE and home is None:
                    home = folder / "compiled"
                    list(run_cells("copy", BUDGETS[-1], folder / "few", folder / "copy"))
                    (folder / "copy" / "home").rename(home)
                source = folder / ("few" if job in HOSTILE else "in")
                for cell in run_cells(job, budget, source, folder / "run", home if job in HOSTILE else None):
                    found[job, budget, cell.is_first] = cell
                    print(f"{job:18s} {budget:6s} {'first' if cell.is_first else 'later'} {_figure(cell)}", flush=True)
                    if kept is not None:
                        with open(kept, "a", encoding="utf-8") as out:
                            out.write(json.dumps(vars(cell)) + "\n")
    return found


def _figure(cell: Cell) -> str:
    figure = f"{cell.peak_bytes / 1e6:,.0f} MB"
    over = "" if cell.fits and not cell.left else " **over**" if not cell.fits else " **left processes**"
    return figure + over + ("" if cell.status == 0 else f" ({outcome(cell)})")


def page(found: dict[tuple[str, str, bool], Cell]) -> list[str]:
    jobs = [*JOBS, *HOSTILE]
    head = ["job", *(f"{budget}, {when}" for budget in BUDGETS for when in ("first", "later"))]
    lines = ["# Figures of budgets", "", *ABOUT.splitlines(), "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for job in jobs:
        keys = [(job, budget, first) for budget in BUDGETS for first in (True, False)]
        cells = [_figure(found[key]) if key in found else "not measured" for key in keys]
        name = f"stage: {job.replace('_', ' ')}" if job in HOSTILE else job
        lines.append(f"| {name} | {' | '.join(cells)} |")
    n_over = sum(not cell.fits for cell in found.values())
    return [*lines, "", f"{len(found)} cells, {n_over} over their budget. Measured on {os.cpu_count()} cores."]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*JOBS, *HOSTILE], action="append")
    parser.add_argument("--keep", type=Path, default=None)
    args = parser.parse_args()
    found = measure(args.only or [*JOBS, *HOSTILE], args.keep)
    if not args.only:
        write_page("benchmarks-budget.md", page(found))
    return int(any(not cell.fits or cell.left for cell in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
