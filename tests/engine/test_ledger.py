"""The books: they balance, or say what does not."""

from __future__ import annotations

import json
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.engine.ledger import MODULUS, Dropped, Example, Ledger, StageBook, Tally


def balanced() -> Ledger:
    """Five records: one bad, one not sampled, one dropped, one split in two; three are written."""
    ledger = Ledger(stages=[StageBook("filter"), StageBook("split")])
    ledger.records.add(5, 15)
    ledger.quarantined.add(1, 1)
    ledger.not_sampled.add(1, 2)
    keep, split = ledger.stages
    keep.into.add(3, 12)
    keep.drop("too short", 1, 3, 70, [(0, 12, "d-7")])
    keep.out.add(2, 9)
    split.into.add(2, 9)
    split.out.add(1, 4)
    split.consumed.add(1, 5)
    split.derived.add(2, 100)
    ledger.written.add(3, 104)
    return ledger


def test_a_balanced_ledger_has_no_problems() -> None:
    assert balanced().problems() == []
    assert balanced().n_dropped == 1


def test_identities_wrap_around_and_come_back() -> None:
    tally = Tally(1, MODULUS - 1)
    tally.add(1, 5)
    assert (tally.n, tally.identity) == (2, 4)
    assert tally.to_list() == [2, "00000000000000000000000000000004"]
    assert Tally.from_list(tally.to_list()) == tally


def test_a_lost_document_is_named_with_its_stage() -> None:
    ledger = balanced()
    ledger.stages[0].out.add(-1, -4)
    assert ledger.problems() == [
        "stage 'filter': 3 documents came in, 2 are accounted for",
        "stage 'split' received 2 documents where 1 were handed on",
    ]


def test_a_swapped_document_is_noticed_although_counts_agree() -> None:
    ledger = balanced()
    ledger.stages[1].out.identity += 1
    assert ledger.problems() == [
        "stage 'split': the counts agree, but they are not the same documents",
        "3 documents were written where 3 left the last stage",
    ]


def test_an_unwritten_document_is_noticed() -> None:
    ledger = balanced()
    ledger.written.add(-1, -4)
    assert ledger.problems() == ["2 documents were written where 3 left the last stage"]


def test_without_stages_what_is_read_is_written() -> None:
    ledger = Ledger()
    ledger.records.add(2, 7)
    ledger.written.add(2, 7)
    assert ledger.problems() == []
    ledger.records.add(1, 1)
    assert ledger.problems() == ["2 documents were written where 3 left the last stage"]


def test_books_add_up_by_stage_and_survive_json() -> None:
    total = Ledger()
    for _ in range(3):
        total.merge(Ledger.from_dict(json.loads(json.dumps(balanced().to_dict()))))
    assert total.problems() == []
    assert (total.records.n, total.written.n, total.n_dropped) == (15, 9, 3)
    assert [b.name for b in total.stages] == ["filter", "split"]
    assert total.stages[0].dropped == {"too short": Dropped(3, 9, 210, [(0, 12, "d-7")])}


def test_a_part_without_the_later_stages_merges_too() -> None:
    whole = balanced()
    part = Ledger(stages=[StageBook("filter")])
    part.records.add(1, 50)
    part.stages[0].into.add(1, 50)
    part.stages[0].drop("too short", 1, 50)
    whole.merge(part)
    assert whole.problems() == []


def test_dropping_nothing_leaves_no_reason() -> None:
    book = StageBook("s")
    book.drop("why", 0, 0)
    assert book.dropped == {}


def test_books_written_before_bytes_and_examples_were_kept_still_load() -> None:
    old = balanced().to_dict()
    old["stages"][0]["dropped"] = {"too short": [1, "00000000000000000000000000000003"]}
    ledger = Ledger.from_dict(json.loads(json.dumps(old)))
    assert ledger.problems() == []
    ledger.merge(balanced())
    assert ledger.stages[0].dropped == {"too short": Dropped(2, 6, 70, [(0, 12, "d-7")])}


def test_the_first_three_examples_in_input_order_stay() -> None:
    book = StageBook("s")
    book.drop("why", 2, 0, 10, [(1, 5, None), (0, 900, "z")])
    book.drop("why", 2, 0, 7, [(0, 20, None), (1, 4, "a")])
    assert book.dropped["why"] == Dropped(4, 0, 17, [(0, 20, None), (0, 900, "z"), (1, 4, "a")])


EXAMPLES = st.tuples(st.integers(-1, 2), st.integers(-1, 3), st.none() | st.sampled_from("ab"))


@given(st.lists(st.lists(EXAMPLES, max_size=3), max_size=6), st.randoms(use_true_random=False))
def test_neither_the_order_nor_the_grouping_of_merging_matters(parts: list[list[Example]], random: object) -> None:
    tallies = []
    for i, examples in enumerate(parts):
        tally = Dropped(1, i)
        tally.note(10, examples)
        tallies.append(tally)

    def merged(some: list[Dropped]) -> Dropped:
        return reduce(lambda a, b: (a.merge(b), a)[1], some, Dropped())

    whole = merged(tallies)
    half = len(tallies) // 2
    shuffled = tallies[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merged([merged(tallies[:half]), merged(tallies[half:])]) == merged(shuffled) == whole
    assert Dropped.from_list(json.loads(json.dumps(whole.to_list()))) == whole
    assert len(whole.examples) <= 3


@pytest.mark.parametrize("values", [[1, "0", 5], [1, "0", 5, [[1, 2]]], [1, "0", "x", []], [1, "0", 5, 7]])
def test_damaged_counts_are_refused(values: list[object]) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)):
        Dropped.from_list(values)
