"""What parameters a class or function takes, and what it says that it returns; asked of what users wrote, in stages and recipes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
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


def returns_list(thing: Callable[..., Any]) -> bool:
    """Whether a function says that it returns a list.

    >>> def some() -> list[int]: ...
    >>> def one() -> int: ...
    >>> returns_list(some), returns_list(one)
    (True, False)
    """
    said = signature(thing).return_annotation
    return said is list or str(said).startswith("list")
