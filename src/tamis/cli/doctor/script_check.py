"""Check a script against the package: the names and parameters that it uses; advice is in tamis/_nemo_hints.toml."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tamis._nemo_hints import load_advice, suggest_replacement
from tamis.cli.doctor.script_uses import Use, read_script, uses_of, uses_of_recipe
from tamis.engine.run.settings import SETTINGS
from tamis.errors import UsageError
from tamis.recipe.targets import current_name

WORKS, DIFFERS, MISSING = "works", "differs", "missing"
# Rooms that users import from. Others are not looked at: importing is running.
ROOMS = ("backends", "config", "core", "models", "pipeline", "stages", "tasks", "utils")
_RUNS = ("run", "execute")  # methods that take the settings of a run besides their parameters
_ALL = re.compile(r"^__all__ = \[([^]]*)\]", re.MULTILINE)
_DEFINED = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
_NETWORKS = "models"  # modules of networks, which are called in another way than those of NeMo Curator
_NOTHING = object()


@dataclass(frozen=True)
class Finding:
    line: int
    what: str
    verdict: str
    note: str = ""


def check_script(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return all findings about a script, as plain JSON values, and the number of findings of each kind."""
    source, name = read_script(path), os.fspath(path)
    if name.endswith((".yaml", ".yml")):
        uses = [replace(use, path=current_name(use.path)) for use in uses_of_recipe(source, name)]
    else:
        uses = uses_of(source, name)
    findings = judge(uses)
    counts = {v: sum(f.verdict == v for f in findings) for v in (WORKS, DIFFERS, MISSING)}
    return {"script": os.fspath(path), "counts": counts, "findings": [asdict(f) for f in findings]}


def judge(uses: Iterable[Use]) -> list[Finding]:
    """Return a finding for each import, and for each call with anything to report beyond its import."""
    findings: list[Finding] = []
    uses = list(uses)
    for use in uses:
        if use.kind == "import":
            findings.append(_judge_import(use))
        elif (thing := find(use.path)) is not _NOTHING:
            findings += _judge_call(use, thing)
    findings += _judge_paths(uses)
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.line)


def _judge_paths(uses: Iterable[Use]) -> list[Finding]:
    """Return a finding for each output that is inside of an input read before it, or has an input inside of it.

    An input that comes after the output is that of another pipeline, which continues with what the first wrote.
    """
    inputs: list[tuple[int, str, str]] = []
    outputs: list[tuple[int, str, str]] = []
    for use in uses:
        name, texts = use.path.rpartition(".")[2], dict(use.texts)
        if use.kind != "call":
            continue
        for kind, parameters, paths in (
            (("Reader", "Workflow", "PartitioningStage"), ("file_paths", "input_path"), inputs),
            (("Writer", "Workflow"), ("path", "output_path"), outputs),
        ):
            if name.endswith(kind):
                wanted = (*parameters, "") if not name.endswith("Workflow") else parameters
                paths += [(use.line, name, os.path.normpath(texts[p])) for p in wanted if texts.get(p)]
    findings = []
    for line, name, output in outputs:
        for source_line, _, source in inputs:
            if source_line > line:
                continue
            if _is_inside(output, source):
                note = f"{output} is inside the input {source}: it is left out of what is read; give another folder"
                findings.append(Finding(line, f"{name}({output!r})", DIFFERS, note))
            elif _is_inside(source, output):
                note = (
                    f"the input {source} is inside the output {output}: a folder with files that Tamis did not write "
                    "is refused; give another folder"
                )
                findings.append(Finding(line, f"{name}({output!r})", DIFFERS, note))
    return findings


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _judge_import(use: Use) -> Finding:
    what = (
        f"from {use.path.rpartition('.')[0]} import {use.path.rpartition('.')[2]}"
        if "." in use.path
        else f"import {use.path}"
    )
    if not use.complete:
        return Finding(
            use.line, f"from {use.path} import *", DIFFERS, "what is imported is unknown; import names one by one"
        )
    if find(use.path) is _NOTHING:
        return Finding(
            use.line, what, MISSING, _elsewhere(use.path) or suggest_replacement(use.path) or _nearest(use.path)
        )
    name = use.path.rpartition(".")[2]
    note = load_advice()["differs"].get(name) or load_advice()["behaviour"].get(name, "")
    return Finding(use.line, what, DIFFERS if note else WORKS, note)


def _judge_call(use: Use, thing: Any) -> list[Finding]:
    what = use.path.rpartition(".")[2]
    if use.method:
        what = f"{what}.{use.method}"
        thing = getattr(thing, use.method, _NOTHING)
        if thing is _NOTHING:
            note = load_advice()["methods"].get(use.method, "there is no such method")
            return [Finding(use.line, f"{what}()", MISSING, note)]
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return []
    if use.method and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    return [*_judge_arguments(use, what, parameters), *_refused_options(use, what, thing)]


def _judge_arguments(use: Use, what: str, parameters: list[inspect.Parameter]) -> list[Finding]:
    verdicts = [*_unknown_keywords(use, what, parameters), *_surplus_positions(use, what, parameters)]
    for parameter, text in use.texts if what.endswith("Writer") else ():
        if (difference := load_advice()["values"].get(f"{parameter}={text}")) is not None:
            verdicts.append(Finding(use.line, f"{what}({parameter}={text!r})", DIFFERS, difference))
    order = load_advice()["order"].get(what)
    if order and use.n_positional > 1:
        verdicts.append(
            Finding(use.line, f"{what}(...)", DIFFERS, f"the order of parameters differs: {order}; give them by name")
        )
    if not use.complete and not verdicts:
        verdicts.append(
            Finding(use.line, f"{what}(...)", DIFFERS, "arguments are unpacked (* or **), so they cannot be checked")
        )
    return verdicts


def _refused_options(use: Use, what: str, thing: Any) -> list[Finding]:
    """Return a finding for each option of a reader or writer of files that it refuses when it is made."""
    if use.method or not (isinstance(thing, type) and thing.__module__.startswith("tamis.stages.text.io.")):
        return []
    findings = []
    for parameter, options in use.options:
        for name, value in options.items() if parameter in ("read_kwargs", "write_kwargs") else ():
            try:
                if name != "storage_options":  # about the machine that runs it
                    thing("path", **{parameter: {name: value}})
            except UsageError as exc:
                if parameter in str(exc):
                    findings.append(Finding(use.line, f"{what}({parameter}: {name}={value!r})", MISSING, str(exc)))
            except TypeError:  # it has no such parameter, which is another finding
                break
    return findings


def _unknown_keywords(use: Use, what: str, parameters: list[inspect.Parameter]) -> list[Finding]:
    """Return a finding for each keyword argument that a call gives and the function does not have."""
    names = [p.name for p in parameters]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        if use.method not in _RUNS:
            return []
        names += SETTINGS
    if not names:
        return []
    return [
        Finding(use.line, f"{what}({keyword}=...)", MISSING, _about_parameter(what, keyword, names))
        for keyword in use.keywords
        if keyword not in names
    ]


def _surplus_positions(use: Use, what: str, parameters: list[inspect.Parameter]) -> list[Finding]:
    """Return a finding if a call gives more arguments by position than the function takes."""
    takes = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if use.n_positional <= len(takes) or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return []
    note = f"{use.n_positional} arguments by position, and it takes {len(takes)}: {', '.join(takes) or 'none'}"
    return [Finding(use.line, f"{what}(...)", MISSING, note)]


def _elsewhere(path: str) -> str:
    """Return where a name is that is not in the module of a script, as in earlier releases of NeMo Curator."""
    name = path.rpartition(".")[2]
    holders = [module for module, names in _public_names().items() if name in names]
    if not holders:
        return ""
    nearest = max(holders, key=lambda module: (_n_shared(module, path), -module.count("."), module))
    return f"it is in another module: from {nearest} import {name}"


def _n_shared(module: str, path: str) -> int:
    """Return how many leading parts two dotted paths have in common."""
    pairs = zip(module.split("."), path.split("."), strict=False)
    return next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), len(module))


@cache
def _public_names() -> dict[str, frozenset[str]]:
    """Return the names that modules which users import from list or define, without importing these."""
    root = Path(__file__).parents[2]
    names_by_module = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            listed = _ALL.search(text)
            names = re.findall(r'"(\w+)"', listed[1]) if listed is not None else _DEFINED.findall(text)
            parts = path.relative_to(root).with_suffix("").parts
            module = ".".join(("tamis", *(part for part in parts if part != "__init__")))
            if _NETWORKS not in parts:
                names_by_module[module] = frozenset(names)
    return names_by_module


def _about_parameter(what: str, keyword: str, names: list[str]) -> str:
    parameters = load_advice()["parameters"]
    note = parameters.get(f"{what}.{keyword}") or parameters.get(keyword)
    if note:
        return str(note)
    near = difflib.get_close_matches(keyword, names, 1)
    return f"did you mean {near[0]}?" if near else f"there is no such parameter; there are {', '.join(names) or 'none'}"


def find(path: str) -> Any:
    """Return the module, class or function at a dotted path below tamis, or `_NOTHING` if there is none."""
    parts = path.split(".")
    if parts[0] != "tamis" or any(p.startswith("__") for p in parts) or (len(parts) > 1 and parts[1] not in ROOMS):
        import tamis

        return getattr(tamis, parts[1], _NOTHING) if len(parts) == 2 and parts[1] in tamis.__all__ else _NOTHING
    target: Any = importlib.import_module("tamis")
    for i, part in enumerate(parts[1:], 2):
        if inspect.ismodule(target):
            module = _module(".".join(parts[:i]))
            target = getattr(target, part, _NOTHING) if module is None else module
        else:
            target = getattr(target, part, _NOTHING)
        if target is _NOTHING:
            return _NOTHING
    return target


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(exc.name + ".")):
            return None
        raise


def _nearest(path: str) -> str:
    """Suggest the most similar name in the nearest module that exists."""
    module, _, name = path.rpartition(".")
    while module and (thing := find(module)) is _NOTHING:
        module = module.rpartition(".")[0]
    names = [n for n in dir(thing) if not n.startswith("_")] if module else []
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"there is no such name; did you mean {module}.{near[0]}?"
    return "there is no such name in either package"
