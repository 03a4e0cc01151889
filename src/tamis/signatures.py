"""What parameters a class or function takes, and what it says that it returns; asked of what users wrote, in stages and recipes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any


def signature(thing: Callable[..., Any]) -> inspect.Signature:
    """The signature of a callable. Raises TypeError or ValueError where it has none, as `inspect.signature` does.

    From Python 3.14 on annotations are evaluated when somebody asks for them, and may name what only a type checker imports:
    there they are the text that was written.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(thing, annotation_format=Format.STRING)
    return inspect.signature(thing)


def accepted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the values that a function takes by their names; all where it takes any.

    >>> accepted(lambda memory=None: None, {"memory": "1GB", "watch": None}), accepted(lambda **more: None, {"watch": None})
    ({'memory': '1GB'}, {'watch': None})
    """
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return dict(given)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(given)
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return {name: value for name, value in given.items() if name in names}


def returns_list(thing: Callable[..., Any]) -> bool:
    """Whether a function says that it returns a list.

    >>> def some() -> list[int]: ...
    >>> def one() -> int: ...
    >>> returns_list(some), returns_list(one)
    (True, False)
    """
    said = signature(thing).return_annotation
    return said is list or str(said).startswith("list")
