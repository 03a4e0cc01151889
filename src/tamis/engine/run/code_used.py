"""The functions and classes of a user's own package that a stage calls or inherits from: one that was edited makes other documents, as an
edited stage does. Code of Tamis, of Python and of installed packages does not count: a new version of these makes no other run.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_MOST = 500  # things that are looked at: a package may be a framework


def code_used(stage: Any, source: Callable[[Any], str]) -> dict[str, str]:
    """The hash of the source (by `source`) of everything that `stage` uses of its own package, and functions and objects that it holds of
    theirs, by name. The class of the stage itself is left out, and what belongs to Tamis."""
    seen: dict[str, Any] = {}
    waiting = [thing for value in (type(stage), *vars(stage).values()) for thing in _things_of(value)]
    first = {_name(thing) for thing in waiting}
    while waiting and len(seen) < _MOST:
        thing = waiting.pop()
        if _name(thing) not in seen and _is_users(thing):
            seen[_name(thing)] = thing
            waiting += [used for used in _used_by(thing) if _package(used) == _package(thing)]
    return {name: source(seen[name]) for name in sorted(seen.keys() - first)}


def _things_of(value: Any) -> list[Any]:
    """The function or class behind a value that a stage holds."""
    if isinstance(value, functools.partial):
        return _things_of(value.func)
    if isinstance(value, (list, tuple)):
        return [thing for one in value for thing in _things_of(one)]
    if isinstance(value, types.MethodType):
        return [value.__func__, *_things_of(value.__self__)]
    if inspect.isfunction(value) or inspect.isclass(value):
        return [value]
    return [] if inspect.isroutine(value) or inspect.ismodule(value) else [type(value)]


def _used_by(thing: Any) -> Iterator[Any]:
    """What the code of a function, or of the methods of a class, calls by name; and the classes that a class inherits from."""
    if inspect.isclass(thing):
        yield from thing.__bases__
        for member in vars(thing).values():
            if isinstance(member, property):
                member = member.fget
            member = getattr(member, "__func__", member)  # of static methods and class methods
            if inspect.isfunction(member):
                yield from _used_by(member)
        return
    function = inspect.unwrap(thing)
    names = [name for code in _codes(function.__code__) for name in code.co_names]
    known = function.__globals__
    for name in dict.fromkeys(names):
        found = known.get(name)
        if inspect.isfunction(found) or inspect.isclass(found):
            yield found
        elif inspect.ismodule(found):  # helpers.clean(text)
            yield from (f for f in (vars(found).get(n) for n in names) if inspect.isfunction(f) or inspect.isclass(f))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code, and that of functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _package(thing: Any) -> str:
    return str(getattr(thing, "__module__", "") or "").partition(".")[0]


def _is_users(thing: Any) -> bool:
    """Whether a module of the user's has it: a script, a notebook, or a file that lies where neither Python nor pip puts any."""
    if _package(thing) in ("__main__", "tamis"):
        return _package(thing) == "__main__"
    file = getattr(sys.modules.get(thing.__module__ or ""), "__file__", None)
    return (
        file is not None
        and not file.startswith(_STDLIB)
        and not {"site-packages", "dist-packages"} & set(Path(file).parts)
    )


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
