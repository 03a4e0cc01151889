"""What was dropped, as people and programs see it."""

from __future__ import annotations

from tamis.engine.ledger import Example, Ledger, StageBook
from tamis.observe.drops import Drop, drops_of


def ledger(*examples: Example) -> Ledger:
    made = Ledger(stages=[StageBook("rules"), StageBook("last")])
    made.stages[0].drop("short", 2, 1, 20, examples)
    made.stages[0].drop("long", 9, 1, 9000)
    made.stages[1].drop("last", 1, 1, 10)
    return made


def test_stages_in_order_and_the_busiest_rule_first() -> None:
    def paths() -> list[str]:
        raise AssertionError("every document has an id")

    assert drops_of(ledger((0, 7, "a"), (-1, -1, "made")), paths) == [
        Drop("rules", "long", 9, 9000, []),
        Drop("rules", "short", 2, 20, ["made", "a"]),
        Drop("last", "last", 1, 10, []),
    ]


def test_a_document_without_id_is_named_by_its_place() -> None:
    paths = ["/x/one.jsonl", "/x/same.jsonl", "/y/same.jsonl"]
    drop = drops_of(ledger((0, 7, None), (1, 8, None), (2, 9, None)), lambda: paths)[1]
    assert drop.examples == ["one.jsonl:7", "/x/same.jsonl:8", "/y/same.jsonl:9"]


def test_an_unknown_file_gives_no_example() -> None:
    assert drops_of(ledger((5, 7, None), (0, 7, None)), lambda: ["/x/a.jsonl"])[1].examples == ["a.jsonl:7"]
    assert drops_of(ledger((0, 7, None)), list)[1].examples == []
