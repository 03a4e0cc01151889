"""How tests are handed out to processes (tests/support/distribution.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.distribution import LONG, MODELS, sort_for_distribution, work_unit
from tests.support.torture_parts import ROOT


def test_long_files_come_first_and_files_of_models_together() -> None:
    ids = [
        "src/tamis/sizes.py::tamis.sizes.parse",
        "tests/faults/test_b.py::test_2",
        "tests/faults/test_a.py::test_1",
        "tests/stages/text/models/test_x.py::test_1",
        "tests/faults/test_a.py::test_0",
        "tests/stages/text/embedders/test_y.py::test_1",
    ]
    items: list[Any] = [SimpleNamespace(nodeid=nodeid) for nodeid in ids]
    sort_for_distribution(items)
    assert [item.nodeid for item in items] == [ids[i] for i in (3, 5, 2, 4, 1, 0)]
    assert len({work_unit(nodeid) for nodeid in ids}) == 4


def test_every_long_path_exists() -> None:
    assert [path for path in (*LONG, *MODELS) if not (ROOT / path).exists()] == []
