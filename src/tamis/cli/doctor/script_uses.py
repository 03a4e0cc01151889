"""Finds the names of NeMo Curator and Tamis that a script uses, from its syntax.

The script is never run, and nothing of it is imported.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tamis.errors import UsageError

if TYPE_CHECKING:
    import yaml

PACKAGES = ("nemo_curator", "tamis")
_MOST_BYTES = 10_000_000
_TARGET = "_target_"  # in recipes: the class to make
_SELF = "self."


@dataclass(frozen=True)
class Use:
    """One place in a script. `path` is dotted, with tamis for either package; `method`: of an object of that class."""

    line: int
    kind: str  # "import", "call" or "method"
    path: str
    method: str = ""
    keywords: tuple[str, ...] = ()
    n_positional: int = 0
    complete: bool = True  # False: arguments are unpacked (*, **), so that not all of them can be seen
    # Arguments that are texts, by parameter; "" for the first by position.
    texts: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    # Arguments that are mappings of literals (write_kwargs={"force_ascii": True}), by parameter.
    options: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=(), compare=False)


def _literal_options(node: ast.expr) -> Mapping[str, Any] | None:
    """Return a mapping of literals, None for any other expression."""
    if not isinstance(node, ast.Dict):
        return None
    try:
        value = ast.literal_eval(node)
    except ValueError:  # of variables, or unpacked
        return None
    return value if all(isinstance(key, str) for key in value) else None


def read_script(path: str | os.PathLike[str]) -> str:
    """Return the source of a script, or the joined code cells of a notebook."""
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            raise UsageError(
                f"{os.fspath(path)}: {os.path.getsize(path):,} bytes are no script; expected at most {_MOST_BYTES:,}"
            )
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{os.fspath(path)}: cannot be read: {exc}") from exc
    return _cells(text, os.fspath(path)) if os.fspath(path).endswith(".ipynb") else text


def _cells(text: str, path: str) -> str:
    """Return the code cells; lines for the notebook itself (%magic, !shell) become blank to keep line numbers."""
    try:
        cells = [c["source"] for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
        lines = "\n".join("".join(c) if isinstance(c, list) else str(c) for c in cells).split("\n")
    except (ValueError, KeyError, TypeError) as exc:
        raise UsageError(f"{path}: this is no notebook: {type(exc).__name__}: {exc}") from exc
    return "\n".join("" if line.lstrip().startswith(("%", "!", "?")) else line for line in lines)


def uses_of(source: str, name: str = "script") -> list[Use]:
    """Return imports, calls of imported names, and calls of methods of objects made by such a call.

    In the order of lines.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        where = f" in line {exc.lineno}" if isinstance(exc, SyntaxError) else ""
        raise UsageError(f"{name}: this is no Python that can be read{where}: {exc}") from exc
    finder = _Finder()
    try:
        finder.visit(tree)
    except RecursionError as exc:
        raise UsageError(f"{name}: its expressions are nested too deeply to be read") from exc
    return sorted(finder.uses, key=lambda use: use.line)


def _uses_of_target(entries: dict[str, yaml.Node]) -> list[Use]:
    """Return the import and the call of a mapping with a `_target_` of Tamis or the original, if it has one."""
    import yaml

    target = entries.get(_TARGET)
    path = _ours(target.value) if isinstance(target, yaml.ScalarNode) else None
    if target is None or path is None:
        return []
    line = target.start_mark.line + 1
    keywords = tuple(k for k in entries if not (k.startswith("_") and k.endswith("_")))
    plain = {k: entries[k].value for k in keywords if isinstance(entries[k], yaml.ScalarNode)}
    texts = tuple((k, text) for k, text in plain.items() if "${" not in text)
    maps = {k: entries[k] for k in keywords if k.endswith("_kwargs") and isinstance(entries[k], yaml.MappingNode)}
    options = tuple((k, yaml.safe_load(yaml.serialize(node))) for k, node in maps.items())
    return [Use(line, "import", path), Use(line, "call", path, keywords=keywords, texts=texts, options=options)]


def uses_of_recipe(source: str, name: str = "recipe") -> list[Use]:
    """Return what the `_target_` entries of a YAML file import and call, in the order of lines."""
    import yaml

    try:
        root = yaml.compose(source, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        raise UsageError(f"{name}: this is no YAML that can be read: {exc}") from exc
    uses: list[Use] = []
    waiting, seen = [root] if root is not None else [], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
            uses += _uses_of_target({k.value: v for k, v in node.value if isinstance(k, yaml.ScalarNode)})
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
    return sorted(uses, key=lambda use: use.line)


_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


@dataclass
class _Finder(ast.NodeVisitor):
    """Follows names in the order of lines: what a function, class or comprehension binds ends with it.

    Attributes of `self` are those of all methods of a class.
    """

    uses: list[Use] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # name in the script -> dotted path of what was imported
    # name in the script, or self.name -> dotted path of the class it is made by.
    objects: dict[str, str] = field(default_factory=dict)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            path = _ours(alias.name)
            first = alias.asname or alias.name.partition(".")[0]
            self._forget(first)
            if path is not None:
                self.uses.append(Use(node.lineno, "import", path))
                self.names[first] = path if alias.asname else "tamis"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        path = _ours(node.module or "") if node.level == 0 else None
        for alias in node.names:
            name = alias.asname or alias.name
            self._forget(name)
            if path is None:
                continue
            whole = path if alias.name == "*" else f"{path}.{alias.name}"
            self.uses.append(Use(node.lineno, "import", whole, complete=alias.name != "*"))
            if alias.name != "*":
                self.names[name] = whole

    # -- scopes --------------------------------------------------------------------------------------------------------
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._enter(node)

    def _enter(self, node: _Scope) -> None:
        if not isinstance(node, ast.Lambda):
            self._forget(node.name)
        names, objects = self.names.copy(), self.objects.copy()
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self._forget(argument.arg)
        for rest in (arguments.vararg, arguments.kwarg):
            if rest is not None:
                self._forget(rest.arg)
        self.generic_visit(node)
        of_self = {name: path for name, path in self.objects.items() if name.startswith(_SELF)}
        self.names, self.objects = names, {**objects, **of_self}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._forget(node.name)
        names, objects = self.names.copy(), self.objects.copy()
        self.generic_visit(node)
        self.names, self.objects = names, objects

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehend(node, [node.elt])

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehend(node, [node.elt])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehend(node, [node.elt])

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehend(node, [node.key, node.value])

    def _comprehend(self, node: _Comprehension, results: list[ast.expr]) -> None:
        names, objects = self.names.copy(), self.objects.copy()
        for generator in node.generators:
            self.visit(generator.iter)
            self._bind(generator.target, None)
            for condition in generator.ifs:
                self.visit(condition)
        for result in results:
            self.visit(result)
        self.names, self.objects = names, objects

    # -- binding -------------------------------------------------------------------------------------------------------
    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._bind(node.target, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self._bind(node.target, node.value)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._bind(node.target, None)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self.visit_For(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self._forget(node.name)
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        self.generic_visit(node)
        if node.optional_vars is not None:
            self._bind(node.optional_vars, node.context_expr)

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        """Follow the assignment of a value, None for one that is not known, to all names of a target."""
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._bind(part, None)
            return
        if isinstance(target, ast.Starred):
            self._bind(target.value, None)
            return
        name = _name_of(target)
        if name is None:
            return
        made_by = self._class_of(value) if value is not None else None
        path = self._path(value) if value is not None else None
        self._forget(name)
        if made_by is not None:
            self.objects[name] = made_by
        elif path is not None:
            self.names[name] = path

    def _forget(self, name: str) -> None:
        self.names.pop(name, None)
        self.objects.pop(name, None)

    # -- uses ----------------------------------------------------------------------------------------------------------
    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        path, method = self._path(node.func), ""
        if path is None and isinstance(node.func, ast.Attribute):
            path, method = self._class_of(node.func.value), node.func.attr
        if path is None:
            return
        keywords = tuple(k.arg for k in node.keywords if k.arg is not None)
        positional = [a for a in node.args if not isinstance(a, ast.Starred)]
        complete = len(positional) == len(node.args) and len(keywords) == len(node.keywords)
        kind = "method" if method else "call"
        first = [("", node.args[0])] if node.args else []
        named = [*first, *((k.arg, k.value) for k in node.keywords if k.arg is not None)]
        texts = tuple((n, v.value) for n, v in named if isinstance(v, ast.Constant) and isinstance(v.value, str))
        options = tuple((n, value) for n, v in named if (value := _literal_options(v)) is not None)
        self.uses.append(Use(node.lineno, kind, path, method, keywords, len(positional), complete, texts, options))

    def _path(self, node: ast.expr) -> str | None:
        """Return the dotted path of a name, or of attributes of an imported name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return None
        return ".".join([self.names[node.id], *reversed(parts)])

    def _class_of(self, node: ast.expr) -> str | None:
        """Return the class that an expression is made by: a call of one, a variable, or a chain of add_stage()."""
        name = _name_of(node)
        if name is not None:
            return self.objects.get(name)
        if not isinstance(node, ast.Call):
            return None
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("add_stage", "with_"):
            return self._class_of(node.func.value)
        path = self._path(node.func)
        return path if path is not None and path.rpartition(".")[2][:1].isupper() else None


def _name_of(node: ast.expr) -> str | None:
    """Return the name of a variable, or `self.` and that of an attribute."""
    if isinstance(node, ast.Name):
        return node.id
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return f"{_SELF}{node.attr}" if is_own and isinstance(node, ast.Attribute) else None


def _ours(module: str) -> str | None:
    first, dot, rest = module.partition(".")
    return f"tamis{dot}{rest}" if first in PACKAGES else None
