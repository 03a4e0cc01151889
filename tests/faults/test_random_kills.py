"""Random kills over all kinds of jobs (random_kills.py): a few here, many with `make torture-kills-long`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.random_kills import KINDS, Row, run_kills, table


def assert_harmless(rows: dict[str, Row]) -> None:
    told = "\n".join(table(rows))
    assert not [reason for row in rows.values() for reason in row.failed], told
    assert not [name for name, row in rows.items() if row.n_different or row.n_leftovers], told


def test_a_job_that_is_killed_writes_the_same(tmp_path: Path) -> None:
    rows = run_kills(["filter jsonl.gz"], kills=2, minutes=1, seed=4, folder=tmp_path)
    assert_harmless(rows)
    assert rows["filter jsonl.gz"].n_kills == 2


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_kind_of_job_is_killed_and_writes_the_same(tmp_path: Path) -> None:
    rows = run_kills([], kills=int(os.environ.get("TAMIS_TORTURE_KILLS", "60")), minutes=20, seed=5, folder=tmp_path)
    assert_harmless(rows)
    assert set(rows) == {kind.name for kind in KINDS if kind.name in rows or not kind.needs}
