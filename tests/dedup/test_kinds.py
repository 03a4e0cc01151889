"""The registry of kinds: everything that follows from an entry exists, and belongs to that kind."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tamis.cli.main import app
from tamis.cli.parsing.arguments import Command, Commands
from tamis.dedup.kinds import EXACT, KINDS, DedupKind
from tamis.recipe.step_names import NAMES

PAGE = Path(__file__).parents[2] / "docs/guides/dedup.md"


COMPARED = [kind for kind in KINDS.values() if kind.is_deduplication]


@pytest.mark.parametrize("kind", COMPARED, ids=lambda kind: kind.name)
def test_every_kind_has_a_workflow_a_command_and_a_row_in_the_docs(kind: DedupKind) -> None:
    assert hasattr(kind.load_workflow(), "passes")
    assert hasattr(kind.load_workflow(), "plan") == kind.has_plan
    commands = app["dedup"]
    assert isinstance(commands, Commands)
    assert isinstance(commands[kind.name], Command)
    step = f"`{kind.step}`" if kind.step else ""
    assert f"| `tamis dedup {kind.name}` | {step} | {kind.summary} |" in PAGE.read_text()


@pytest.mark.parametrize("kind", [kind for kind in COMPARED if kind.step], ids=lambda kind: kind.name)
def test_the_step_of_a_kind_makes_its_workflow(kind: DedupKind) -> None:
    module, _, name = NAMES[kind.step].rpartition(".")
    step = getattr(import_module(module), name)()
    assert step.kind is kind
    assert isinstance(step.workflow("out"), kind.load_workflow())
    assert step.workflow("out").passes().kind is kind


def test_kinds_that_are_decided_together_exist() -> None:
    assert {kind.decided_with for kind in KINDS.values()} <= {"", EXACT.name}
