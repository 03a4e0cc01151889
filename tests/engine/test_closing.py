"""When a run is complete: the limit in records, in bytes, and when nothing at all was read."""

from __future__ import annotations

import pytest

from tamis.engine.ledger import Ledger, Tally
from tamis.engine.run.closing import judge


def verdict(
    n: int, n_bad: int = 0, lost: int = 0, limit: float = 0.001, floor: int = 100, **more: int
) -> tuple[int, str]:
    ledger = Ledger(records=Tally(n, 0), quarantined=Tally(n_bad, 0), lost_bytes=lost, **more)
    found = judge(ledger, 1_000_000, limit, floor)
    return found.exit_code, found.message("tamis quarantine out")


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ({"n": 10_000}, 0, ""),
        ({"n": 10_000, "n_bad": 100}, 0, ""),
        ({"n": 10_000, "n_bad": 101}, 3, "101 of 10000 records are in quarantine (1.01%), above the limit of 0.10%"),
        ({"n": 10_000, "n_bad": 1, "floor": 0, "limit": 0.0}, 3, "above the limit of 0.00%"),
        ({"n": 10_000, "lost": 1000, "n_bad_ranges": 1}, 0, ""),
        (
            {"n": 10_000, "lost": 1001, "n_bad_ranges": 1},
            3,
            "1 kB of it as stored, 0.10% of its bytes, above the limit of 0.10%",
        ),
        ({"n": 10_000, "lost": 2_000_000, "n_bad_ranges": 1, "limit": 1.0}, 3, "100.00%"),
        ({"n": 10_000, "lost": 9, "n_bad_ranges": 1, "n_lost_files": 1, "limit": 1.0}, 3, "changed during the run"),
        ({"n": 0, "lost": 9, "n_bad_ranges": 1, "limit": 1.0}, 3, "nothing of the input could be read"),
        ({"n": 5, "n_bad": 5}, 3, "nothing of the input could be read"),
        ({"n": 0}, 0, ""),
        # Files that a stage opened itself.
        ({"n": 0, "stage_records": 5, "n_bad_ranges": 1, "lost": 1000}, 0, ""),
        ({"n": 1, "n_bad": 1, "stage_records": 999, "floor": 0}, 0, ""),
        ({"n": 0, "stage_records": 999, "n_bad_ranges": 1, "floor": 0}, 3, "1 of 999 records"),
        ({"n": 0, "stage_records": 5, "stage_bytes": 10_000_000, "n_bad_ranges": 1, "lost": 10_000}, 0, ""),
        ({"n": 0, "stage_records": 5, "stage_bytes": 10_000_000, "n_bad_ranges": 1, "lost": 10_001}, 3, "0.10% of its"),
    ],
)
def test_verdicts(what: dict[str, float], code: int, words: str) -> None:
    found, message = verdict(**what)  # type: ignore[arg-type]
    assert (found, words in message) == (code, True), message


def test_what_is_lost_is_kept_in_the_log() -> None:
    ledger = Ledger(lost_bytes=7, n_lost_files=2, n_bad_ranges=3)
    again = Ledger.from_dict(ledger.to_dict())
    again.merge(ledger)
    assert (again.lost_bytes, again.n_lost_files, again.n_bad_ranges) == (14, 4, 6)
