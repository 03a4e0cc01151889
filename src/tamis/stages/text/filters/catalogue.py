"""Every filter that ships with Tamis, with its defaults and the first sentence about it: what `tamis filter --list` shows."""

from __future__ import annotations

import importlib
import inspect
from typing import NamedTuple

from tamis.stages.text.filters.base import DocumentFilter

MODULES = (
    "tamis.stages.text.filters.length",
    "tamis.stages.text.filters.heuristic.string",
    "tamis.stages.text.filters.heuristic.repetition",
    "tamis.stages.text.filters.heuristic.code",
    "tamis.stages.text.filters.token",
    "tamis.stages.text.filters.fasttext",
    "tamis.stages.text.filters.histogram",
)


class Entry(NamedTuple):
    name: str
    module: str
    parameters: str
    about: str


def filters() -> list[Entry]:
    """Return the filters in the order of their modules."""
    found = []
    for path in MODULES:
        module = importlib.import_module(path)
        for name, thing in vars(module).items():
            own = isinstance(thing, type) and thing.__module__ == module.__name__ and not name.startswith("_")
            if own and issubclass(thing, DocumentFilter):
                about = inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].replace("\n", " ")
                found.append(Entry(name, module.__name__, _parameters(thing), about))
    return found


def _parameters(filter_class: type[DocumentFilter]) -> str:
    """Parameters as they are written in a call, without their types."""
    shown = []
    for parameter in inspect.signature(filter_class).parameters.values():
        default = parameter.default
        shown.append(parameter.name if default is inspect.Parameter.empty else f"{parameter.name}={default!r}")
    return ", ".join(shown)
