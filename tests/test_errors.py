"""The exception tree and its exit codes."""

from __future__ import annotations

import pytest

from tamis import errors


@pytest.mark.parametrize(
    ("name", "parent", "code"),
    [
        ("TamisError", "Exception", 1),
        ("UsageError", "TamisError", 2),
        ("RecipeError", "UsageError", 2),
        ("PipelineError", "UsageError", 2),
        ("MissingExtra", "UsageError", 2),
        ("BudgetError", "TamisError", 4),
        ("RunConflict", "TamisError", 5),
        ("Incomplete", "TamisError", 3),
        ("ConservationError", "TamisError", 6),
        ("StageError", "TamisError", 7),
        ("WorkerError", "TamisError", 1),
        ("FormatError", "TamisError", 1),
    ],
)
def test_the_tree_is_as_drawn(name: str, parent: str, code: int) -> None:
    cls = getattr(errors, name)
    assert cls.__mro__[1].__name__ == parent
    assert cls.exit_code == code
    assert name in (errors.__doc__ or "")


def test_no_error_is_missing_from_the_drawing() -> None:
    made = [n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, Exception)]
    assert [n for n in made if n not in (errors.__doc__ or "")] == []


def test_usage_errors_are_value_errors() -> None:
    assert issubclass(errors.UsageError, ValueError)


def test_recipe_errors_say_where() -> None:
    assert str(errors.RecipeError("bad", file="r.yaml", line=3, field="stages[0]")) == "r.yaml:3: stages[0]: bad"
    assert str(errors.RecipeError("bad")) == "bad"


def test_a_missing_extra_names_the_command() -> None:
    message = str(errors.MissingExtra("reading videos", "video"))
    assert "reading videos" in message
    assert "pip install 'tamis[video]'" in message
    assert "pip install '.[video]'" in message


def test_what_an_extra_brings_is_there_or_named() -> None:
    import json

    assert errors.optional("json", "reading", "text") is json
    with pytest.raises(errors.MissingExtra, match=r"^reading needs an optional dependency; ") as caught:
        errors.optional("no_such_module_here", "reading", "text")
    assert str(caught.value).endswith("pip install 'tamis[text]' (in a checkout: pip install '.[text]')")


def test_a_setting_is_one_of_its_values() -> None:
    errors.check_choice("stage: mode", "a", {"a": 1, "b": 2})
    with pytest.raises(errors.UsageError, match=r"^stage: mode must be one of a, b, got 'c'$"):
        errors.check_choice("stage: mode", "c", ("a", "b"))


def test_a_run_that_failed_raises_the_exception_of_its_exit_code() -> None:
    raised = [type(errors.error_of_run(code, "why")).__name__ for code in (1, 3, 6, 8)]
    assert raised == ["TamisError", "Incomplete", "ConservationError", "TamisError"]
