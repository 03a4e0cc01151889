"""The filters and rule sets that ship with Tamis, read off the classes of this package.

Used by `tamis filter` and for docs/reference/filters.md. A class that is added to a module of the package, or a module
that is added, needs no entry here; only its parameters without a default have examples in reference.py.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import tamis.stages.text.filters as package
from tamis.errors import UsageError
from tamis.stages.text.filters.doc_filter import DocumentFilter
from tamis.stages.text.filters.rule_set import RuleSet


class FilterInfo(NamedTuple):
    """A filter class with its parameters, as written in a call, and the first paragraph about it."""

    cls: type[DocumentFilter]
    parameters: str
    about: str

    @property
    def name(self) -> str:
        return self.cls.__name__

    @property
    def module(self) -> str:
        """The module within this package."""
        return self.cls.__module__.removeprefix(f"{package.__name__}.")


def list_filters() -> list[FilterInfo]:
    """Return the filters of all modules but the base classes, by module, in the order of their definition."""
    return [
        FilterInfo(cls, _parameters(cls), inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("\n", " "))
        for module in _modules()
        if module.__name__ != DocumentFilter.__module__
        for cls in _classes(module, DocumentFilter)
        if not inspect.isabstract(cls)
    ]


@lru_cache(maxsize=1)
def rule_sets() -> dict[str, tuple[type[RuleSet], ...]]:
    """Return the rule sets by the names that `tamis filter` takes."""
    return _sets_in(_modules())


def _sets_in(modules: Iterable[ModuleType]) -> dict[str, tuple[type[RuleSet], ...]]:
    sets: dict[str, tuple[type[RuleSet], ...]] = {}
    for module in modules:
        for cls in _classes(module, RuleSet):
            for name in cls.sets:
                sets[name] = (*sets.get(name, ()), cls)
    return sets


def _stages_of(name: str) -> tuple[type[RuleSet], ...]:
    """Return the stages of a rule set; empty if there is none of this name.

    All stages of a set are in one module. It is tried first in the module that it is named after, since importing every
    module of filters takes 20 ms.
    """
    module = name.partition("-")[0]
    if any(info.name == module and not info.ispkg for info in pkgutil.iter_modules(package.__path__)):
        stages = _sets_in([importlib.import_module(f"{package.__name__}.{module}")]).get(name)
        if stages:
            return stages
    return rule_sets().get(name, ())


def find_sets(names: str) -> list[type[RuleSet]]:
    """Return the stages of one set, or of several joined by +, each once.

    >>> [stage.__name__ for stage in find_sets("gopher-quality+c4+gopher")]
    ['GopherQuality', 'C4Quality', 'GopherRepetition']
    """
    stages: dict[type[RuleSet], None] = {}
    for name in names.split("+"):
        key = name.strip().replace("_", "-")
        set_stages = _stages_of(key)
        if not set_stages:
            near = difflib.get_close_matches(key, rule_sets(), 1)
            raise UsageError(
                f"unknown set of filters: {name.strip()!r}{f'; did you mean {near[0]}?' if near else ''}; "
                f"known: {', '.join(rule_sets())}"
            )
        stages.update(dict.fromkeys(set_stages))
    return list(stages)


def limits(one: DocumentFilter) -> str:
    """Return the limits of a filter, in human-readable form.

    >>> from tamis.stages.text.filters.heuristic import NumbersFilter, WordCountFilter
    >>> limits(NumbersFilter()), limits(WordCountFilter(2, 5))
    ('<= 0.15', '>= 2, <= 5')
    """
    values = one.thresholds()
    sides = [(">=", getattr(one, "at_least", None)), ("<=", getattr(one, "at_most", None))]
    return ", ".join(f"{sign} {values[name]:g}" for sign, name in sides if name is not None and name in values)


def _modules() -> Iterator[ModuleType]:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.ispkg:
            yield importlib.import_module(module.name)


def _classes(module: ModuleType, base: Any) -> list[Any]:
    """Return the public classes that a module defines."""
    return [
        value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and name[0] != "_"
    ]


def _parameters(filter_class: type[DocumentFilter]) -> str:
    """Return the parameters as they are written in a call, without their types."""
    return ", ".join(
        parameter.name if parameter.default is inspect.Parameter.empty else f"{parameter.name}={parameter.default!r}"
        for parameter in inspect.signature(filter_class).parameters.values()
    )
