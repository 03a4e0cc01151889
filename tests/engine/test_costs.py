"""What stages did and cost, added up over reports and over attempts."""

from __future__ import annotations

from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.messages import Done, StageUse
from tamis.engine.monitor.stage_costs import StageCosts


def book(name: str, n_in: int, n_out: int, dropped: dict[str, int], n_new: int = 0) -> StageBook:
    made = StageBook(name, seconds=0.5)
    made.into.add(n_in, 1)
    made.out.add(n_out, 1)
    made.derived.add(n_new, 1)
    for reason, n in dropped.items():
        made.drop(reason, n, 1)
    return made


def report(*books: StageBook, stages: list[StageUse]) -> Done:
    return Done(ledger=Ledger(stages=list(books)), stages=stages)


def test_reports_add_up() -> None:
    costs = StageCosts(["rules", "split"], Ledger())
    for peak in (7, 9, 8):
        costs.add(
            report(
                book("rules", 10, 7, {"short": 2, "long": 1}),
                book("split", 7, 0, {}, n_new=14),
                stages=[StageUse("rules", 1000, 0.25, peak), StageUse("split", 700, 0.125, 5)],
            )
        )
    assert costs.rows() == [
        {
            "stage": "rules",
            "position": 0,
            "n_in": 30,
            "n_out": 21,
            "n_dropped": 9,
            "n_quarantined": 0,
            "in_bytes": 3000,
            "seconds": 1.5,
            "cpu_s": 0.75,
            "peak_bytes": 9,
        },
        {
            "stage": "split",
            "position": 1,
            "n_in": 21,
            "n_out": 42,
            "n_dropped": 0,
            "n_quarantined": 0,
            "in_bytes": 2100,
            "seconds": 1.5,
            "cpu_s": 0.375,
            "peak_bytes": 5,
        },
    ]
    assert costs.n_duplicates == 0


def test_a_report_without_books_counts_nothing() -> None:
    costs = StageCosts(["rules"], Ledger())
    costs.add(Done(schema="[]"))
    assert [(row["stage"], row["n_in"]) for row in costs.rows()] == [("rules", 0)]


def test_a_stage_that_only_the_books_know_comes_last() -> None:
    costs = StageCosts(["rules"], Ledger())
    costs.add(report(book("rules", 1, 1, {}), book("declared schema", 1, 0, {"no int": 1}), stages=[]))
    assert [(row["stage"], row["position"], row["n_dropped"]) for row in costs.rows()] == [
        ("rules", 0, 0),
        ("declared schema", 1, 1),
    ]


def test_earlier_attempts_count() -> None:
    before = Ledger(stages=[book("rules", 10, 8, {"short": 2})])
    known = {"rules": {"in_bytes": 500, "cpu_s": 2.0, "peak_bytes": 70, "n_in": 99}, "gone": {"in_bytes": 1}}
    costs = StageCosts(["rules"], before, known)
    costs.add(report(book("rules", 5, 5, {}), stages=[StageUse("rules", 100, 1.0, 60)]))
    assert costs.rows() == [
        {
            "stage": "rules",
            "position": 0,
            "n_in": 15,
            "n_out": 13,
            "n_dropped": 2,
            "n_quarantined": 0,
            "in_bytes": 600,
            "seconds": 1.0,
            "cpu_s": 3.0,
            "peak_bytes": 70,
        }
    ]


def test_duplicates_are_what_stages_that_remove_them_drop() -> None:
    costs = StageCosts([], Ledger())
    costs.add(
        report(
            book("remove_duplicates", 9, 5, {"duplicate": 4}),
            book("repetition", 5, 2, {"duplicate_lines": 3}),
            stages=[],
        )
    )
    assert costs.n_duplicates == 4
