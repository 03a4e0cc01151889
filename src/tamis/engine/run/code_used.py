"""Functions and classes of a user's own package that a stage calls or inherits from.

One that was edited makes other documents, as an edited stage does. Code of Tamis, of Python and of installed
packages does not count: a new version of these makes no other run.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_MOST = 500  # things that are looked at: a package may be a framework
_DEPTH = 6  # of lists in lists
_FRAMES = {"data", "to_pandas"}  # attributes of a batch that are frames
_PLAIN = (str, bytes, bytearray, int, float, complex, type(None))


def code_used(stage: Any, source: Callable[[Any], str]) -> dict[str, str]:
    """Return the source hash (by `source`) of all code of its own package that `stage` uses, by name.

    Includes the functions and objects that the stage holds and what these use of their own packages. Leaves out the
    class of the stage itself, and everything that belongs to Tamis.
    """
    reached, first = _reached(stage)
    return {name: source(reached[name]) for name in sorted(reached.keys() - first)}


def reads_frames(stage: Any) -> bool:
    """Return True if code of a stage of a user's names `data` or `to_pandas`, here or in what it uses.

    That depends on the code alone, so it is the same in every run.
    """
    classes = [cls for cls in type(stage).__mro__ if _package(cls) not in ("tamis", "builtins", "abc", "typing")]
    functions = [f for obj in [*classes, *_reached(stage)[0].values()] for f in _functions_of(obj)]
    return any(_FRAMES & set(code.co_names) for f in functions for code in _codes(f.__code__))


def constants_used(stage: Any) -> dict[str, bool | int | float]:
    """Return the numbers that code of a user's names as globals, such as a threshold next to a stage, by name.

    Leaves out those that the code assigns itself: they are variables of the run.
    """
    constants: dict[str, bool | int | float] = {}
    for function in {f for obj in _reached(stage)[0].values() for f in _functions_of(obj)}:
        codes = list(_codes(function.__code__))
        assigned = {i.argval for code in codes for i in dis.get_instructions(code) if i.opname == "STORE_GLOBAL"}
        for name in {name for code in codes for name in code.co_names} - assigned:
            value = function.__globals__.get(name)
            if isinstance(value, (bool, int, float)):
                constants[f"{function.__module__}.{name}"] = value
    return dict(sorted(constants.items()))


def _reached(stage: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the functions and classes of the user's that a stage is made of and uses, and the names of the former."""
    reached: dict[str, Any] = {}
    waiting = list({id(obj): obj for obj in _members([type(stage), vars(stage)], _DEPTH)}.values())
    first = {_name(obj) for obj in waiting}
    while waiting and len(reached) < _MOST:
        obj = waiting.pop()
        if _name(obj) not in reached and _is_user_code(obj):
            reached[_name(obj)] = obj
            waiting += [used for used in _used_by(obj) if _package(used) == _package(obj)]
    return reached, first


def _members(values: Iterable[Any], depth: int) -> Iterator[Any]:
    """Yield the functions and classes of the values that a stage holds, also in lists, sets and values of dicts.

    The same one may be yielded repeatedly. There may be millions of values, most of them texts and numbers, and a
    list may contain itself.
    """
    for value in values:
        if isinstance(value, _PLAIN) or not depth:
            continue
        if isinstance(value, (list, tuple, set, frozenset)):
            yield from _members(value, depth - 1)
        elif isinstance(value, dict):
            yield from _members(value.values(), depth - 1)
        elif isinstance(value, functools.partial):
            yield from _members((value.func, value.args, value.keywords), depth - 1)
        elif isinstance(value, types.MethodType):
            yield from _members((value.__func__, value.__self__), depth - 1)
        elif inspect.isfunction(value) or inspect.isclass(value):
            yield value
        elif not inspect.isroutine(value) and not inspect.ismodule(value):
            yield type(value)


def _used_by(obj: Any) -> Iterator[Any]:
    """Yield what the code of a function, or of a class's methods, calls by name, and a class's base classes."""
    if inspect.isclass(obj):
        yield from obj.__bases__
        for method in _methods(obj):
            yield from _used_by(method)
        return
    function = _unwrapped(obj)
    names = [name for code in _codes(function.__code__) for name in code.co_names]
    global_names = function.__globals__
    for name in dict.fromkeys(names):
        global_value = global_names.get(name)
        if inspect.isfunction(global_value) or inspect.isclass(global_value):
            yield global_value
        elif inspect.ismodule(global_value):  # helpers.clean(text)
            yield from (
                f for f in (vars(global_value).get(n) for n in names) if inspect.isfunction(f) or inspect.isclass(f)
            )


def _methods(cls: type) -> Iterator[types.FunctionType]:
    """Yield the functions that a class defines: methods, properties, static and class methods."""
    for member in vars(cls).values():
        if isinstance(member, property):
            member = member.fget
        elif isinstance(member, (staticmethod, classmethod)):
            member = member.__func__
        if inspect.isfunction(member):
            yield member


def _functions_of(obj: Any) -> Iterator[types.FunctionType]:
    """Yield a function itself, or those that a class defines."""
    for function in _methods(obj) if inspect.isclass(obj) else (obj,):
        yield _unwrapped(function)


def _unwrapped(function: types.FunctionType) -> types.FunctionType:
    """Return the function inside a decorated one.

    Return the function itself if the wrapped object is a callable that is not a function, or if unwrapping does not
    end.
    """
    try:
        inside = inspect.unwrap(function)
    except ValueError:
        return function
    return inside if inspect.isfunction(inside) else function


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code, and that of functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _package(obj: Any) -> str:
    return str(getattr(obj, "__module__", "") or "").partition(".")[0]


def _is_user_code(obj: Any) -> bool:
    """Return True if the thing is defined in a module of the user's.

    That is a script, a notebook, or a file outside the folders into which Python and pip install.
    """
    if _package(obj) in ("__main__", "tamis"):
        return _package(obj) == "__main__"
    file = getattr(sys.modules.get(obj.__module__ or ""), "__file__", None)
    return (
        file is not None
        and not file.startswith(_STDLIB)
        and not {"site-packages", "dist-packages"} & set(Path(file).parts)
    )


def _name(obj: Any) -> str:
    return f"{obj.__module__}.{obj.__qualname__}"
