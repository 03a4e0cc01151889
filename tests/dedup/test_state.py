"""State files: what is written is read back; anything else is refused with the file and a remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis.dedup.solver_task import (
    STEPS,
    CompareCandidates,
    CutLines,
    DecideEqual,
    FindCandidates,
    LinkBands,
    NamedStep,
    RangeResults,
)
from tamis.dedup.state import FirstPass, IndexPin, IndexPins, State, Summary
from tamis.errors import RunConflict, UsageError
from tamis.formats.input_files.skipped import SkippedEntry


def test_values_are_read_as_they_were_written(tmp_path: Path) -> None:
    state = State(str(tmp_path))
    assert state.first_pass.read() is None
    first = FirstPass(7, 1, False, [SkippedEntry("no text", 2, [])])
    state.first_pass.write(first)
    assert state.first_pass.read() == first
    pins = IndexPins([IndexPin("index/entry", "index/entry/records.arrow", 100, 20, 3)])
    state.index_pins.write(pins)
    assert state.index_pins.read() == pins
    summary: Summary = {"n_documents": 3, "n_duplicates": 1, "group_sizes": {"2": 1}}
    state.summary.write(summary)
    assert state.summary.read() == summary
    assert not state.linked(0).exists()
    assert json.loads((tmp_path / "first_pass.json").read_text())["version"] == 1


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"version": 2, "bands_per_pass": 1}',
        b'{"version": 1, "bands_per_pass": "many"}',
        b'{"version": 1, "bands_per_pass": 1, "more": 2}',
        b'{"version": 1}',
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "chosen.json").write_bytes(content)
    with pytest.raises(RunConflict, match=r"chosen\.json is damaged .*fresh"):
        State(str(tmp_path)).band_choice.read()


@pytest.mark.parametrize(
    "step",
    [
        DecideEqual("score", {"hashed_on": "cpu"}, RangeResults("equal")),
        LinkBands(["a.arrow"], [1, 2], RangeResults("equal", "bands")),
        FindCandidates(),
        CompareCandidates(0.8, 24, "char", 42, "longest", None, "text", "none", texts=["t.arrow"]),
        CutLines(2, True),
    ],
)
def test_steps_of_the_solver_survive_being_stored(step: Any) -> None:
    assert NamedStep.of(step).step() == step


def test_every_step_has_a_handler() -> None:
    from importlib import import_module

    for path in STEPS.values():
        module, _, name = path.partition(":")
        assert callable(getattr(import_module(module), name))
    with pytest.raises(UsageError, match="unknown step 'Guess'"):
        NamedStep("Guess", {}).step()
