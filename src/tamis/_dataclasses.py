"""The `dataclass` of the standard library, in less time (`from tamis._dataclasses import dataclass`).

The standard one compiles `__repr__`, `__eq__` and `__hash__` for each class. Every command makes some three hundred
classes as it starts, and the process that its workers are forked from half as many: functions that all classes share
save a third of that time. Everything else is left to the standard library, so that `fields`, `replace` and `asdict`
work, and type checkers see the original.
"""

from __future__ import annotations

import dataclasses
import functools
import reprlib
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, *, repr: bool = True, eq: bool = True, **options: Any) -> Any:
        """Make a dataclass; takes the options of the standard library."""
        if cls is None:
            return functools.partial(dataclass, repr=repr, eq=eq, **options)
        if not eq or options.get("order") or options.get("unsafe_hash"):
            return dataclasses.dataclass(cls, repr=repr, eq=eq, **options)
        own = vars(cls)
        shared = {"__eq__": _equals, "__hash__": _hash if options.get("frozen") else None}
        if repr:
            shared["__repr__"] = _show
        for name in shared.keys() & own.keys():  # methods of its own stay
            if name != "__hash__" or own[name] is not None or "__eq__" not in own:  # None: only for its own __eq__
                del shared[name]
        made = dataclasses.dataclass(cls, repr=False, eq=False, **options)
        for name, method in shared.items():
            setattr(made, name, method)
        return made


def _equals(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    names = _compared(self.__class__)
    return _values(self, names) == _values(other, names)


def _hash(self: Any) -> int:
    return hash(_values(self, _hashed(self.__class__)))


@reprlib.recursive_repr()
def _show(self: Any) -> str:
    values = [f"{name}={getattr(self, name)!r}" for name in _shown(self.__class__)]
    return f"{self.__class__.__qualname__}({', '.join(values)})"


def _values(value: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple([getattr(value, name) for name in names])


@functools.cache
def _compared(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if field.compare)


@functools.cache
def _hashed(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind) if (f.compare if f.hash is None else f.hash))


@functools.cache
def _shown(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if field.repr)
