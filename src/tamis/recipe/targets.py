"""`_target_` names -> objects. The one place that decides what a recipe may build.

A target is `module.Name`. The module must be one of Tamis' public rooms or allowed by name on the command line, and is checked
before it is imported; the name must lead to a class, or to a stage made by `@processing_stage`, that is *defined* in such a
module (or is a class of Tamis that its `__all__` lists), so that nothing merely imported there (`tamis.stages.x.os`,
`tamis.stages.x.Path`) can be reached.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from tamis import secrets
from tamis.errors import RecipeError
from tamis.recipe.yaml_text import Node, References, suggest

PUBLIC_ROOMS = (
    "tamis.stages",
    "tamis.pipeline",
    "tamis.core.client",
    "tamis.curation.steps",
    "tamis.curation.pictures",
)
TARGET = "_target_"
# Where earlier releases of the original had what recipes name.
_EARLIER = {
    "tamis.stages.text.modules.score_filter": "tamis.stages.text.filters",
    "tamis.stages.text.modules.modifier": "tamis.stages.text.modifiers",
    "tamis.stages.text.filters.heuristic_filter": "tamis.stages.text.filters.heuristic",
    "tamis.stages.text.filters.code": "tamis.stages.text.filters.heuristic.code",
    "tamis.stages.text.filters.fasttext_filter": "tamis.stages.text.filters.fasttext",
}

_DOTTED = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*")
_FOREIGN_KEYS = ("_args_", "_partial_", "_recursive_", "_convert_", "_mode_")


@dataclass(frozen=True)
class Targets:
    """Checks and builds the `_target_` mappings of one recipe."""

    file: str
    references: References
    allow: Sequence[str] = ()

    def fail(self, message: str, node: Node, path: str) -> RecipeError:
        return RecipeError(message, file=self.file, line=node.line, field=path)

    def check(self, node: Node, path: str) -> None:
        """Check every target name at and below `node` without importing anything."""
        for found, where in _walk(node, path):
            assert isinstance(found.value, dict)
            if TARGET in found.value:
                self._name(found, where)

    def build(self, node: Node, path: str) -> object:
        """The value of `node`, with every `_target_` mapping in it turned into its object."""
        if isinstance(node.value, list):
            return [self.build(item, f"{path}.{i}") for i, item in enumerate(node.value)]
        if not isinstance(node.value, dict):
            return self.references.value(node, path)
        if TARGET not in node.value:
            return {key: self.build(item, f"{path}.{key}") for key, item in node.value.items()}
        found = self._resolve(node, path)
        name = self._name(node, path)
        for key in _FOREIGN_KEYS:
            if key in node.value:
                raise self.fail(f"{key} is not supported; write parameters by name", node.value[key], f"{path}.{key}")
        given = {key: item for key, item in node.value.items() if key != TARGET}
        if not isinstance(found, type):
            if given:
                raise self.fail(
                    f"{name} is a ready-made stage and takes no parameters; remove {', '.join(given)}", node, path
                )
            return found
        self._check_parameters(found, name, given, node, path)
        values = {key: self.build(item, f"{path}.{key}") for key, item in given.items()}
        secrets.learn(values)  # what goes wrong below may tell them
        try:
            return found(**values)
        except MemoryError:
            raise
        except Exception as exc:
            culprit = next((key for key in given if re.search(rf"\b{re.escape(key)}\b", str(exc))), None)
            at = given[culprit] if culprit else node
            what = f"{type(exc).__name__}: {exc}" if not isinstance(exc, ValueError | TypeError) else str(exc)
            raise self.fail(
                f"{name} refused its parameters: {secrets.hide(what)}", at, f"{path}.{culprit}" if culprit else path
            ) from exc

    def _name(self, node: Node, path: str) -> str:
        """The canonical, permitted target name of a mapping."""
        assert isinstance(node.value, dict)
        at, where = node.value[TARGET], f"{path}.{TARGET}"
        if isinstance(at.value, (list, dict)):
            raise self.fail("expected the dotted name of a class, got a list or mapping", at, where)
        name = self.references.value(at, where)
        if not isinstance(name, str) or not _DOTTED.fullmatch(name) or "." not in name:
            raise self.fail(
                f"expected the dotted name of a class such as tamis.stages.text.io.reader.JsonlReader, got {name!r}",
                at,
                where,
            )
        if name.startswith("nemo_curator."):
            name = "tamis." + name.removeprefix("nemo_curator.")
            room, _, last = name.rpartition(".")
            name = f"{_EARLIER.get(room, room)}.{last}"
        module = name.rpartition(".")[0]
        if not self._permitted(module):
            todo = (
                f"only {', '.join(PUBLIC_ROOMS)} can be used"
                if module == "tamis" or module.startswith("tamis.")
                else f"if you trust {module}, allow it with --allow-module {module}"
            )
            raise self.fail(f"{name} is refused: {module} is not a module that recipes may use; {todo}", at, where)
        return name

    def _permitted(self, module: str) -> bool:
        return any(module == room or module.startswith(room + ".") for room in (*PUBLIC_ROOMS, *self.allow))

    def _resolve(self, node: Node, path: str) -> object:
        assert isinstance(node.value, dict)
        name = self._name(node, path)
        module_name, _, attribute = name.rpartition(".")
        at, where = node.value[TARGET], f"{path}.{TARGET}"
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as exc:
            if exc.name and (module_name == exc.name or module_name.startswith(exc.name + ".")):
                raise self.fail(f"there is no module {exc.name}; check the spelling of {name}", at, where) from None
            raise self.fail(f"importing {module_name} failed: {exc}; install what it needs", at, where) from exc
        except Exception as exc:
            raise self.fail(f"importing {module_name} failed: {type(exc).__name__}: {exc}", at, where) from exc
        try:
            found: object = getattr(module, attribute)
        except AttributeError:
            known = [key for key, value in vars(module).items() if not key.startswith("_") and self._buildable(value)]
            raise self.fail(f"{module_name} has no {attribute}{suggest(attribute, known)}", at, where) from None
        if not self._buildable(found) and not _is_offered(module, attribute, found):
            raise self.fail(f"{name} is refused: it is not a class or stage defined in a permitted module", at, where)
        return found

    def _buildable(self, found: object) -> bool:
        if isinstance(found, type):
            return not issubclass(found, type) and self._permitted(found.__module__)
        base = sys.modules.get("tamis.stages.base")
        if base is None or not isinstance(found, base.ProcessingStage):
            return False
        # A stage made by @processing_stage belongs to the module of its function, not to that of the decorator.
        owner = getattr(found, "function", type(found))
        return self._permitted(str(getattr(owner, "__module__", "")))

    def _check_parameters(self, cls: type, name: str, given: dict[str, Node], node: Node, path: str) -> None:
        try:
            parameters = inspect.signature(cls).parameters
        except (ValueError, TypeError):
            return
        named = {key: p for key, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        shown = [key for key in named if not key.startswith("_")]
        for key, item in given.items():
            if key not in named and not open_ended:
                raise self.fail(f"{cls.__name__} has no parameter {key!r}{suggest(key, shown)}", item, f"{path}.{key}")
        missing = [key for key, p in named.items() if p.default is p.empty and key not in given]
        if missing:
            raise self.fail(
                f"{cls.__name__} needs {', '.join(missing)}; add {'it' if len(missing) == 1 else 'them'}", node, path
            )


def check_allowed_name(module: str) -> str:
    """A module name given with --allow-module: a plain dotted name, no private part."""
    if not _DOTTED.fullmatch(module):
        raise RecipeError(
            f"--allow-module: expected the dotted name of a module such as mycompany.stages, got {module!r}"
        )
    return module


def _walk(node: Node, path: str) -> Iterator[tuple[Node, str]]:
    if isinstance(node.value, dict):
        yield node, path
        for key, item in node.value.items():
            yield from _walk(item, f"{path}.{key}")
    elif isinstance(node.value, list):
        for i, item in enumerate(node.value):
            yield from _walk(item, f"{path}.{i}")


def _is_offered(module: ModuleType, attribute: str, found: object) -> bool:
    """A class of Tamis whose code lies in another room, listed in `__all__` of the public module that a recipe names."""
    return (
        module.__name__.startswith("tamis.")
        and attribute in getattr(module, "__all__", ())
        and isinstance(found, type)
        and found.__module__.startswith("tamis.")
    )
