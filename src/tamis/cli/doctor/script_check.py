"""Check a script against the package: the names and parameters that it uses; advice is in tamis/_nemo_hints.toml."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tamis._nemo_hints import load_advice, suggest_replacement
from tamis.cli.doctor.script_uses import Use, read_script, uses_of, uses_of_recipe

WORKS, DIFFERS, MISSING = "works", "differs", "missing"
# Rooms that users import from. Others are not looked at: importing is running.
ROOMS = ("backends", "config", "core", "models", "pipeline", "stages", "tasks", "utils")
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
    uses = uses_of_recipe(source, name) if name.endswith((".yaml", ".yml")) else uses_of(source, name)
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
    """Return a finding for each output whose path, as the script has it, is that of an input or is inside of one."""
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
        for _, _, source in inputs:
            if output == source or output.startswith(source.rstrip("/") + "/"):
                note = f"{output} is inside the input {source}: it is left out of what is read; give another folder"
                findings.append(Finding(line, f"{name}({output!r})", DIFFERS, note))
    return findings


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
        return Finding(use.line, what, MISSING, suggest_replacement(use.path) or _nearest(use.path))
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
    return _judge_arguments(use, what, parameters)


def _judge_arguments(use: Use, what: str, parameters: list[inspect.Parameter]) -> list[Finding]:
    names = [p.name for p in parameters]
    verdicts = []
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        verdicts += [
            Finding(use.line, f"{what}({keyword}=...)", MISSING, _about_parameter(what, keyword, names))
            for keyword in use.keywords
            if keyword not in names
        ]
    takes = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if use.n_positional > len(takes) and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        note = (
            f"{use.n_positional} arguments by position, and it takes {len(takes)}: "
            f"{', '.join(p.name for p in takes) or 'none'}"
        )
        verdicts.append(Finding(use.line, f"{what}(...)", MISSING, note))
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
