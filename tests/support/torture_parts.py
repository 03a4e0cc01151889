"""The parts of `make torture`: which slow test belongs to which, by its file.

`pytest -m slow --part kills` runs one of them.

A file belongs to the first part that has a pattern for it, so that a new file falls somewhere by itself: into the last
part, if nothing else. Each part has 40 minutes (Makefile). A part that grows beyond them is cut in two here.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS: dict[str, tuple[str, ...]] = {
    "cluster": ("tests/cluster/*",),
    "stores": ("tests/stores/*",),
    "passes": (
        "tests/faults/*curat*",
        "tests/faults/*dedup*",
        "tests/faults/*input*",
        "tests/curation/*",
        "tests/dedup/*",
    ),
    "kills": ("*kill*",),
    "budgets": ("tests/faults/*budget*",),
    "memory": ("tests/faults/*memory*", "tests/faults/*leak*", "tests/faults/*hostile*", "tests/memory/*"),
    "models": ("*model*", "*classif*", "*embed*", "*gpu*"),
    "formats": ("tests/formats/*", "tests/kernels/*", "tests/stages/text/download/*", "*fuzz*"),
    "rest": ("*",),
}


def part_of(path: str) -> str:
    """Return the part of a test file, given by its path below the root of the repository.

    >>> part_of("tests/faults/test_curate_kills.py"), part_of("tests/stages/image/test_kills.py")
    ('passes', 'kills')
    >>> part_of("tests/new.py")
    'rest'
    """
    return next(part for part, patterns in PARTS.items() if any(fnmatchcase(path, pattern) for pattern in patterns))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=list(PARTS), help="only tests of this part of `make torture`")


def keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other parts where `--part` is given."""
    wanted = config.getoption("--part")
    if wanted is None:
        return
    chosen = [item for item in items if part_of(item.path.relative_to(ROOT).as_posix()) == wanted]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
