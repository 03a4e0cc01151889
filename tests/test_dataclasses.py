"""Classes made by tamis._dataclasses behave as those of the standard library."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from tamis._dataclasses import dataclass


class Plain:
    a: int
    b: list[int] = dataclasses.field(default_factory=list, repr=False)
    c: str = dataclasses.field(default="c", compare=False)


class Own:
    a: int

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7


class OwnEquality:
    a: int

    def __eq__(self, other: object) -> bool:
        return True


class Empty:
    pass


def made(make: Any, fields: type, bases: tuple[type, ...] = (), **options: Any) -> Any:
    names = {name: value for name, value in vars(fields).items() if name not in ("__dict__", "__weakref__")}
    return make(**options)(type(fields.__name__, bases, {**names, "__module__": __name__}))


@pytest.mark.parametrize("fields", [Plain, Own, OwnEquality, Empty])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"frozen": True},
        {"eq": False},
        {"repr": False},
        {"slots": True, "frozen": True},
        {"kw_only": True},
        {"unsafe_hash": True},
        {"frozen": True, "eq": False},
    ],
)
def test_methods_are_those_of_the_standard_library(fields: type, options: dict[str, Any]) -> None:
    if fields is Own and options.get("unsafe_hash"):
        with pytest.raises(TypeError, match="__hash__"):
            made(dataclass, fields, **options)
        return
    ours, theirs = (made(make, fields, **options) for make in (dataclass, dataclasses.dataclass))
    values = {} if fields is Empty else {"a": 1}
    x, y = ours(**values), theirs(**values)
    if options.get("repr", True):
        assert repr(x) == repr(y)
    assert (x == ours(**values)) == (y == theirs(**values))
    assert x != y or fields in (Own, OwnEquality)
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert dataclasses.replace(x) is not x
    assert dataclasses.asdict(x) == dataclasses.asdict(y)
    if options.get("frozen") and values:
        with pytest.raises(dataclasses.FrozenInstanceError):
            x.a = 2


def test_fields_left_out_of_a_comparison_do_not_count() -> None:
    kind = made(dataclass, Plain)
    assert kind(1, [2], "x") == kind(1, [2], "y")
    assert kind(1, [2]) != kind(1, [3])
    assert repr(kind(1, [2])) == "Plain(a=1, c='c')"


def test_values_are_keys() -> None:
    class Key:
        a: int
        b: str = dataclasses.field(default="", hash=False)

    kind = made(dataclass, Key, frozen=True)
    assert {kind(1): "one"}[kind(1)] == "one"
    assert hash(kind(1, "x")) == hash(kind(1, "y"))


def test_a_subclass_compares_its_own_fields_too() -> None:
    base = made(dataclass, Plain)
    kind = made(dataclass, type("More", (), {"__annotations__": {"d": "int"}, "d": 0}), bases=(base,))
    assert kind(1, d=2) != kind(1, d=3)
    assert kind(1) != base(1)
    assert repr(kind(1)) == "More(a=1, c='c', d=0)"


def test_a_value_that_holds_itself_is_shown() -> None:
    kind = made(dataclass, Plain)
    value = kind(1)
    value.c = value
    assert repr(value) == "Plain(a=1, c=...)"


@dataclass(frozen=True)
class Stored:
    a: int


def test_values_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Stored(3))) == Stored(3)
