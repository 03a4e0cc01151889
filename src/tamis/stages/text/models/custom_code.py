"""Code that a model brings along.

Where it may run, it must run: `custom_code` finds models and tokenizers that a faster implementation of Tamis must not
replace.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from types import FunctionType, MethodType
from typing import Any

_LIBRARIES = {"transformers", "torch", "tokenizers", "huggingface_hub", "safetensors"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def custom_code(loaded: Any) -> str:
    """Return the first part of a loaded model or tokenizer that is not the libraries' own code.

    An empty string if there is none.

    Covers classes (a subclass counts as custom), attributes of instances, forward hooks, and methods or functions that
    custom code replaced in the modules of `transformers`.
    """
    for part in loaded.modules() if hasattr(loaded, "modules") else [loaded]:
        kind = type(part)
        if not _is_library(kind.__module__):
            return f"{kind.__module__}.{kind.__qualname__}"
        own = vars(part)
        if "forward" in own or any(own.get(hooks) for hooks in _HOOKS):
            return f"forward of {kind.__qualname__}"
        if name := _first_custom(own.items()):
            return f"{name} of {kind.__qualname__}"
    for kind in {type(part) for part in (loaded.modules() if hasattr(loaded, "modules") else [loaded])}:
        for base in kind.__mro__:
            if name := _first_custom(vars(base).items()):
                return f"{name} of {base.__qualname__}"
        module = sys.modules.get(kind.__module__)
        if module is not None and (name := _first_custom(vars(module).items())):
            return f"{name} of {kind.__module__}"
    return ""


def _first_custom(attributes: Iterable[tuple[str, Any]]) -> str:
    """Return the name of the first function that is defined outside of the libraries."""
    return next((name for name, value in list(attributes) if not _is_library_function(value)), "")


def _is_library_function(value: Any) -> bool:
    """Return True if a value is no Python function, or one that a library defines, wrappers included."""
    while isinstance(value, functools.partial | MethodType | staticmethod | classmethod):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    while isinstance(value, FunctionType):
        # Not `__module__`, which functools.wraps copies from the function that is wrapped.
        if not _is_library(value.__globals__.get("__name__", "")):
            return False
        value = getattr(value, "__wrapped__", None)
    return True


def _is_library(module: str) -> bool:
    root = module.partition(".")[0]
    return root in _LIBRARIES or root in sys.stdlib_module_names
