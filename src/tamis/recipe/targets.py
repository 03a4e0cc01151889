"""`_target_` names -> objects. The one place that decides what a recipe may build.

A target is `module.Name`. The module must be one of Tamis' public rooms or allowed by name on the command line, and is
checked before it is imported; the name must lead to a class, or to a stage made by `@processing_stage`, that is
*defined* in such a module (or is a class of Tamis that its `__all__` lists), so that nothing merely imported there
(`tamis.stages.x.os`, `tamis.stages.x.Path`) can be reached.

Nor can a recipe let a model's folder run the code in it: a `trust_remote_code` that says yes, wherever it
occurs, is refused unless the command line says so too.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from types import ModuleType

from tamis import _satellites, secrets
from tamis._dataclasses import dataclass
from tamis.errors import RecipeError, UsageError
from tamis.signatures import signature
from tamis.stores.options import check as check_store_options
from tamis.yaml_text import Located, suggest

PUBLIC_ROOMS = (
    "tamis.stages",
    "tamis.pipeline",
    _satellites.module_of("recipe.client"),
    "tamis.curation.steps",
    "tamis.curation.images",
)
TARGET = "_target_"
OPTIONAL = "_optional_"  # of a step of a curation: left out where a package that it needs is not installed
# Where earlier releases of the original had what recipes name.
_EARLIER = {
    "tamis.stages.text.modules.score_filter": "tamis.stages.text.filters",
    "tamis.stages.text.modules.modifier": "tamis.stages.text.modifiers",
    "tamis.stages.text.filters.heuristic_filter": "tamis.stages.text.filters.heuristic",
    "tamis.stages.text.filters.code": "tamis.stages.text.filters.heuristic.code",
    "tamis.stages.text.filters.fasttext_filter": "tamis.stages.text.filters.fasttext",
}

_DOTTED = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*")
_TRUST = "trust_remote_code"  # of stages, and of what they hand on to transformers and vLLM
_FOREIGN_KEYS = ("_args_", "_partial_", "_recursive_", "_convert_", "_mode_")


def current_name(path: str) -> str:
    """Return where a name of an earlier release of NeMo Curator is now.

    >>> current_name("tamis.stages.text.modules.score_filter.ScoreFilter")
    'tamis.stages.text.filters.ScoreFilter'
    """
    room, _, last = path.rpartition(".")
    return f"{_EARLIER.get(room, room)}.{last}"


@dataclass(frozen=True)
class Targets:
    """Checks and builds the `_target_` mappings of one recipe."""

    allow: Sequence[str] = ()
    trust_remote_code: bool = False

    def check(self, at: Located) -> None:
        """Check every target name, and every consent to run code, at and below a value without importing anything."""
        for node in at.all():
            fields = node.fields()
            if TARGET in fields:
                self._name(fields[TARGET])
            if _TRUST in fields and not self.trust_remote_code:
                _check_no_trust(fields[_TRUST])

    def build(self, at: Located) -> object:
        """Build the value, converting every `_target_` mapping in it to its object."""
        if isinstance(at.node.value, list):
            return [self.build(item) for item in at.items()]
        if not isinstance(at.node.value, dict):
            return at.scalar()
        parameters = at.fields()
        if (store := parameters.get("storage_options")) is not None:
            _refuse_keys(store, self.build(store))
        target = parameters.pop(TARGET, None)
        if target is None:
            return {key: self.build(item) for key, item in parameters.items()}
        return self._build_target(target, parameters, at)

    def _build_target(self, target: Located, parameters: dict[str, Located], at: Located) -> object:
        """Build the object of a `_target_` mapping at `at` from its other keys."""
        target_class = self._resolve(target)
        name = self._name(target)
        for key in _FOREIGN_KEYS:
            if key in parameters:
                raise parameters[key].fail(f"{key} is not supported; write parameters by name")
        if not isinstance(target_class, type):
            if parameters:
                raise at.fail(f"{name} is a ready-made stage and takes no parameters; remove {', '.join(parameters)}")
            return target_class
        _check_parameters(target_class, parameters, at)
        values = {key: self.build(item) for key, item in parameters.items()}
        secrets.learn(values)  # errors below may contain them
        try:
            return target_class(**values)
        except MemoryError:
            raise
        except Exception as exc:
            culprit = next(
                (item for key, item in parameters.items() if re.search(rf"\b{re.escape(key)}\b", str(exc))), at
            )
            what = f"{type(exc).__name__}: {exc}" if not isinstance(exc, ValueError | TypeError) else str(exc)
            raise culprit.fail(f"{name} refused its parameters: {secrets.hide(what)}") from exc

    def _name(self, at: Located) -> str:
        """Return the canonical, permitted name at a `_target_`."""
        if isinstance(at.node.value, (list, dict)):
            raise at.fail("expected the dotted name of a class, got a list or mapping")
        name = at.scalar()
        if not isinstance(name, str) or not _DOTTED.fullmatch(name) or "." not in name:
            raise at.fail(
                f"expected the dotted name of a class such as tamis.stages.text.io.reader.JsonlReader, got {name!r}"
            )
        if name.startswith("nemo_curator."):
            name = current_name("tamis." + name.removeprefix("nemo_curator."))
        module = name.rpartition(".")[0]
        if not self._permitted(module):
            todo = (
                f"only {', '.join(PUBLIC_ROOMS)} can be used"
                if module == "tamis" or module.startswith("tamis.")
                else f"if you trust {module}, allow it with --allow-module {module}"
            )
            raise at.fail(f"{name} is refused: {module} is not a module that recipes may use; {todo}")
        return name

    def _permitted(self, module: str) -> bool:
        return any(module == room or module.startswith(room + ".") for room in (*PUBLIC_ROOMS, *self.allow))

    def _resolve(self, at: Located) -> object:
        name = self._name(at)
        module_name, _, attribute = name.rpartition(".")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as exc:
            if exc.name and (module_name == exc.name or module_name.startswith(exc.name + ".")):
                raise at.fail(f"there is no module {exc.name}; check the spelling of {name}") from None
            raise at.fail(f"importing {module_name} failed: {exc}; install what it needs") from exc
        except Exception as exc:
            raise at.fail(f"importing {module_name} failed: {type(exc).__name__}: {exc}") from exc
        try:
            resolved: object = getattr(module, attribute)
        except AttributeError:
            names = [key for key, value in vars(module).items() if not key.startswith("_") and self._buildable(value)]
            raise at.fail(f"{module_name} has no {attribute}{suggest(attribute, names)}") from None
        if not self._buildable(resolved) and not _is_offered(module, attribute, resolved):
            raise at.fail(f"{name} is refused: it is not a class or stage defined in a permitted module")
        return resolved

    def _buildable(self, value: object) -> bool:
        if isinstance(value, type):
            return not issubclass(value, type) and self._permitted(value.__module__)
        base = sys.modules.get("tamis.stages.base")
        if base is None or not isinstance(value, base.ProcessingStage):
            return False
        # A stage made by @processing_stage belongs to the module of its function, not to that of the decorator.
        owner = getattr(value, "function", type(value))
        return self._permitted(str(getattr(owner, "__module__", "")))


def _check_no_trust(at: Located) -> None:
    value = at.node.value if isinstance(at.node.value, (list, dict)) else at.scalar()
    if value:
        raise at.fail(
            "the recipe asks to run code that a model's folder brings along, and a recipe cannot allow that itself; "
            "if you trust the author of that model, add --trust-remote-code to the command"
        )


def _check_parameters(cls: type, arguments: dict[str, Located], at: Located) -> None:
    try:
        parameters = signature(cls).parameters
    except (ValueError, TypeError):
        return
    named = {key: p for key, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    shown = [key for key in named if not key.startswith("_")]
    for key, item in arguments.items():
        if key not in named and not open_ended:
            raise item.fail(f"{cls.__name__} has no parameter {key!r}{suggest(key, shown)}")
    missing = [key for key, p in named.items() if p.default is p.empty and key not in arguments]
    if missing:
        raise at.fail(f"{cls.__name__} needs {', '.join(missing)}; add {'it' if len(missing) == 1 else 'them'}")


def check_allowed_name(module: str) -> str:
    """Return a module name given with --allow-module if it is valid: a plain dotted name, no private part."""
    if not _DOTTED.fullmatch(module):
        raise RecipeError(
            f"--allow-module: expected the dotted name of a module such as mycompany.stages, got {module!r}"
        )
    return module


def _is_offered(module: ModuleType, attribute: str, value: object) -> bool:
    """Return True if a public module named in a recipe offers a class of Tamis defined in another package.

    Such a class is listed in `__all__` of that module.
    """
    return (
        module.__name__.startswith("tamis.")
        and attribute in getattr(module, "__all__", ())
        and isinstance(value, type)
        and value.__module__.startswith("tamis.")
    )


def _refuse_keys(at: Located, options: object) -> None:
    """Refuse credentials: a recipe is copied, kept and shown."""
    if isinstance(options, dict):
        try:
            check_store_options(options)
        except UsageError as exc:
            raise at.fail(str(exc)) from exc
