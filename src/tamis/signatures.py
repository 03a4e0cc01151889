"""Parameters of classes and functions, and their declared return types.

Inspects functions that users wrote, in stages and recipes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any


def signature(thing: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a callable.

    Raise TypeError or ValueError where it has none, as `inspect.signature` does.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(thing, annotation_format=Format.STRING)
    return inspect.signature(thing)


def accepted(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that a function takes by name; all of them where it takes any."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return dict(values)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(values)
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return {name: value for name, value in values.items() if name in names}


def returns_list(thing: Callable[..., Any]) -> bool:
    """Return True if a function is annotated to return a list."""
    annotation = signature(thing).return_annotation
    return annotation is list or str(annotation).startswith("list")
