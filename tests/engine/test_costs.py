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
    costs = StageCosts(["rules", "split"])
    reports = [
        report(
            book("rules", 10, 7, {"short": 2, "long": 1}),
            book("split", 7, 0, {}, n_new=14),
            stages=[StageUse("rules", 1000, 0.25, peak), StageUse("split", 700, 0.125, 5)],
        )
        for peak in (7, 9, 8)
    ]
    for each in reports:
        costs.add(each)
    assert [vars(cost) for cost in costs.stages(each.ledger for each in reports)] == [
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


def test_a_report_without_books_counts_nothing() -> None:
    costs = StageCosts(["rules"])
    costs.add(Done(schema="[]"))
    assert [(cost.stage, cost.n_in) for cost in costs.stages([])] == [("rules", 0)]


def test_a_stage_that_only_the_books_know_comes_last() -> None:
    done = report(book("rules", 1, 1, {}), book("declared schema", 1, 0, {"no int": 1}), stages=[])
    costs = StageCosts(["rules"]).stages([done.ledger])
    assert [(cost.stage, cost.position, cost.n_dropped) for cost in costs] == [
        ("rules", 0, 0),
        ("declared schema", 1, 1),
    ]


def test_earlier_attempts_count() -> None:
    before = Ledger(stages=[book("rules", 10, 8, {"short": 2})])
    known = {"rules": {"in_bytes": 500, "cpu_s": 2.0, "peak_bytes": 70, "n_in": 99}, "gone": {"in_bytes": 1}}
    costs = StageCosts(["rules"], known)
    done = report(book("rules", 5, 5, {}), stages=[StageUse("rules", 100, 1.0, 60)])
    costs.add(done)
    assert [vars(cost) for cost in costs.stages([before, done.ledger])] == [
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
