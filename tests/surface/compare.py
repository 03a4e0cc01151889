"""What differs between a name as users know it and ours: pure functions over facts and signatures."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import math
from typing import Any

MISSING = object()
FACTORY = object()
UNKNOWN = object()
CONSTANTS: dict[str, Any] = {
    "CURATOR_DEDUP_ID_STR": "_curator_dedup_id",
    "DEFAULT_RAY_PORT": 6379,
    "DEFAULT_RAY_DASHBOARD_PORT": 8265,
    "DEFAULT_RAY_CLIENT_SERVER_PORT": 10001,
    "DEFAULT_RAY_METRICS_PORT": 8080,
    "DEFAULT_RAY_DASHBOARD_HOST": "127.0.0.1",
}
_CONTAINERS = (list, tuple, dict, set, frozenset)


def find(module: str, name: str | None) -> Any:
    """Return the object at this path, MISSING if there is none; without a name, the module."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name is None or not (module == exc.name or module.startswith(exc.name + ".")):
            raise
        return MISSING
    if name is None:
        return found
    return getattr(found, name) if hasattr(found, name) else find(f"{module}.{name}", None)


def find_defined(module: str, name: str) -> Any:
    """Like `find`, for where a name is defined.

    The package around that file will do, because the files are our own affair.
    """
    found = find(module, name)
    return found if found is not MISSING else find(module.rpartition(".")[0], name)


def differences(params: list[str], methods: list[str], thing: Any) -> list[str]:
    """Return what a caller who knows the original would stumble over.

    Names, order and defaults of parameters, missing methods.
    """
    found = [f"no method {m}" for m in methods if not hasattr(thing, m)]
    return [*parameter_differences(params, thing), *found]


def parameter_differences(params: list[str], thing: Any) -> list[str]:
    if isinstance(thing, type) and issubclass(thing, (enum.Enum, type)):
        return []  # nobody calls an enumeration or a metaclass
    ours = _parameters(thing)
    order = [n for n, p in ours.items() if p.kind is not p.VAR_KEYWORD and p.kind is not p.VAR_POSITIONAL]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in ours.values())
    found = []
    wanted = [_split(p) for p in params if not p.startswith("*")]
    for place, (name, default) in enumerate(wanted):
        if name not in ours:
            found.append(f"no parameter {name}" + (" of its own" if takes_any else ""))
            continue
        if order.index(name) != place:
            found.append(f"{name} is parameter {order.index(name) + 1} where it should be {place + 1}")
        if not same_default(default, ours[name]):
            found.append(f"{name} has the default {_shown(ours[name])} where it should be {default}")
    known = {name for name, _ in wanted}
    found += [
        f"{n} is required, and there is none" for n in order if n not in known and ours[n].default is ours[n].empty
    ]
    return found


def same_default(told: str | None, parameter: inspect.Parameter) -> bool:
    """Whether a call that leaves it out does the same. More that may be left out than there is no difference."""
    if told is None:
        return True
    if parameter.default is parameter.empty:
        return False
    value = evaluated(told)
    if value is UNKNOWN:
        return True
    own = parameter.default
    if value is FACTORY:
        return own is None or isinstance(own, _CONTAINERS) or type(own).__name__ == "_HAS_DEFAULT_FACTORY_CLASS"
    if isinstance(value, _CONTAINERS) or isinstance(own, _CONTAINERS):
        return list(value or []) == list(own or [])
    return bool(value == own) and (value is None) == (own is None) and isinstance(value, bool) == isinstance(own, bool)


def evaluated(text: str) -> Any:
    """Evaluate a default that was written as code.

    FACTORY for `field(default_factory=...)`, UNKNOWN if it cannot be told.

    >>> evaluated("1 << 15"), evaluated("'x'"), evaluated("CURATOR_DEDUP_ID_STR")
    (32768, 'x', '_curator_dedup_id')
    """
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (ValueError, SyntaxError):
        return UNKNOWN


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return CONSTANTS.get(node.id, UNKNOWN)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift):
        return _value(node.left) << _value(node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "field":
            return FACTORY
        if node.func.id == "float" and isinstance(node.args[0], ast.Constant):
            return math.inf if node.args[0].value == "inf" else UNKNOWN
    return ast.literal_eval(node)


def _parameters(thing: Any) -> dict[str, inspect.Parameter]:
    try:
        return {n: p for n, p in inspect.signature(thing).parameters.items() if n != "self"}
    except (TypeError, ValueError):
        return {}


def _split(param: str) -> tuple[str, str | None]:
    name, equals, default = param.partition("=")
    return name, default if equals else None


def _shown(parameter: inspect.Parameter) -> str:
    return "none: it is required" if parameter.default is parameter.empty else repr(parameter.default)
