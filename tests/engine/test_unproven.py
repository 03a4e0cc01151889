"""Stages that fail on everything: when that is the stage's fault, and when it is the data's."""

from __future__ import annotations

from dataclasses import replace

from tamis.engine.messages import Failure, FailureKind
from tamis.engine.supervisor.state import FatalKind
from tamis.engine.supervisor.unproven import UnprovenStages
from tamis.engine.units import Piece, PieceKind, Unit


def unit(number: int) -> Unit:
    return Unit(number, [Piece(0, PieceKind.BYTES, "in", 0, 100)])


def failed(stage: str, n: int) -> Failure:
    return Failure(FailureKind.ERROR, "ValueError: no", stage, at="mine.py, line 3", n_failed_alone=n)


def wait(stages: UnprovenStages, made: Unit, stage: str, n: int) -> None:
    """Have a stage fail on a unit, in its first worker and in the trial."""
    assert not stages.add(made, failed(stage, n))
    assert made.trial == stage
    assert stages.add(made, failed(stage, n))


def reason(stages: UnprovenStages, is_last: bool = False) -> str:
    blame = stages.blame(is_last)
    assert blame is not None
    assert blame.kind is FatalKind.STAGE
    return blame.reason


def test_twenty_documents_are_enough() -> None:
    stages = UnprovenStages(set(), is_enabled=True)
    wait(stages, unit(1), "a", 12)
    assert stages.blame() is None
    wait(stages, unit(2), "b", 12)
    assert stages.blame() is None, "each stage by itself"
    wait(stages, unit(3), "a", 8)
    assert reason(stages) == "stage 'a' fails on each of the first 20 documents: ValueError: no [mine.py, line 3]"


def test_a_few_documents_of_a_slow_stage_are_enough() -> None:
    stages = UnprovenStages(set(), is_enabled=True)
    for number in (1, 2, 3):
        made = unit(number)
        assert not stages.add(made, failed("a", 1))
        assert stages.blame() is None
        assert stages.add(made, replace(failed("a", 1), seconds=2.1))
    assert reason(stages).startswith("stage 'a' fails on each of the first 3 documents")


def test_fewer_are_enough_where_nothing_else_is_left() -> None:
    stages = UnprovenStages(set(), is_enabled=True)
    wait(stages, unit(1), "a", 1)
    assert stages.is_waiting
    assert stages.blame() is None
    assert reason(stages, is_last=True).startswith("stage 'a' fails on the first document: ValueError: no")


def test_units_are_released_once_their_stage_has_passed_a_document() -> None:
    proven: set[str] = set()
    stages = UnprovenStages(proven, is_enabled=True)
    wait(stages, unit(1), "a", 3)
    wait(stages, unit(2), "b", 3)
    (released,) = stages.prove(["a", "c"])
    assert (released.id, released.trial, stages.is_waiting, proven) == (1, "", True, {"a", "c"})
    assert not stages.add(made := unit(3), failed("a", 20))
    assert made.trial == ""
    assert "stage 'b'" in reason(stages, is_last=True)


def test_a_stage_that_passes_in_the_trial_is_not_to_blame() -> None:
    stages = UnprovenStages(set(), is_enabled=True)
    made = unit(1)
    assert not stages.add(made, failed("a", 20))
    assert not stages.add(made, failed("a", 0))
    assert (made.trial, stages.is_waiting) == ("", False)


def test_nothing_waits_where_everything_may_be_quarantined() -> None:
    stages = UnprovenStages(set(), is_enabled=False)
    assert not stages.add(unit(1), failed("a", 20))
    assert not stages.is_waiting


def test_a_stage_that_refuses_how_it_was_called_is_a_mistake_in_the_call() -> None:
    stages = UnprovenStages(set(), is_enabled=True)
    made, refused = unit(1), replace(failed("a", 20), error="choose another field", at="", is_usage=True)
    assert not stages.add(made, refused)
    assert stages.add(made, refused)
    assert stages.blame() == (
        FatalKind.USAGE,
        "stage 'a' fails on each of the first 20 documents: choose another field",
    )
