"""Signatures of what users wrote, with annotations that only a type checker can evaluate."""

import sys
import types
from collections.abc import Iterator

import pytest

from tamis.recipe.load import load_recipe
from tamis.signatures import returns_list, signature

STAGES = """
from typing import TYPE_CHECKING
from tamis import ProcessingStage

if TYPE_CHECKING:
    from elsewhere import Thing

class Cut(ProcessingStage):
    name = "cut"

    def __init__(self, n: Thing = 3) -> None:
        self.n = n

    def process(self, task: Thing) -> list[Thing]:
        return [task]
"""
DEFERRED = pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated at once before Python 3.14")


@pytest.fixture(
    params=["from __future__ import annotations\n", pytest.param("", marks=DEFERRED)], ids=["as text", "deferred"]
)
def stages(request: pytest.FixtureRequest) -> Iterator[types.ModuleType]:
    module = types.ModuleType("stages_of_a_user")
    sys.modules[module.__name__] = module
    exec(request.param + STAGES, vars(module))
    yield module
    del sys.modules[module.__name__]


def test_names_that_only_a_type_checker_knows_are_not_resolved(stages: types.ModuleType) -> None:
    assert list(signature(stages.Cut).parameters) == ["n"]
    assert stages.Cut().is_fanout_stage()


def test_a_recipe_checks_parameters_of_such_a_stage(stages: types.ModuleType, tmp_path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"stages:\n- _target_: {stages.__name__}.Cut\n  n: 5\n")
    (stage,) = load_recipe(recipe, allow=[stages.__name__]).stages
    assert stage.n == 5


def test_what_says_that_it_returns_a_list() -> None:
    def some() -> list: ...
    def text() -> "list[str]": ...
    def one() -> str: ...
    def nothing(): ...

    assert [returns_list(f) for f in (some, text, one, nothing)] == [True, True, False, False]
