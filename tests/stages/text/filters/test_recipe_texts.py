"""How `tamis why` writes the limits of rules for a recipe: what it prints changes that limit, in every shipped set."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tamis.engine.job import recorded_rule
from tamis.stages.base import DropRule
from tamis.stages.text.filters.catalogue import rule_sets
from tamis.stages.text.filters.fasttext import LanguageFilter

SETS = sorted({cls for classes in rule_sets().values() for cls in classes} | {LanguageFilter}, key=lambda c: c.__name__)


def rules_of(made: Any) -> dict[str, DropRule]:
    return {rule.name: rule for stage in made.decompose() for rule in stage.rules()}


@pytest.mark.parametrize("cls", SETS)
def test_what_is_printed_changes_the_limit(cls: Any) -> None:
    parameters = {"model_path": __file__} if cls is LanguageFilter else {}
    n_checked = 0
    for name, rule in rules_of(cls(**parameters)).items():
        recorded = recorded_rule("a stage", rule)
        for limit in rule.in_recipe:
            if limit not in rule.limits:
                continue
            text = recorded.recipe_text(limit).replace("{}", "0.5")
            changed = rules_of(cls(**parameters, **yaml.safe_load(text))).get(name)
            if text.endswith(": false"):
                assert changed is None, text
            else:
                assert changed is not None
                assert changed.limits[limit] == 0.5, text
            assert recorded.parameter(limit) == text.partition(":")[0]
            n_checked += 1
    assert n_checked or cls.__name__.startswith("Heuristic"), "filters of their own have parameters of their own"
