"""Benchmarks are run by hand, now and then: what they take from Tamis must be there whenever something is renamed."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def missing(path: Path) -> list[str]:
    """Names of Tamis that a file imports, or asks a module of it for, and that are not there."""
    tree = ast.parse(path.read_text())
    wrong, modules = [], dict[str, ModuleType]()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tamis"):
            continue
        module = importlib.import_module(node.module or "")
        for name in node.names:
            try:
                found = getattr(module, name.name, None) or importlib.import_module(f"{node.module}.{name.name}")
            except ImportError:
                wrong.append(f"{path.name}, line {node.lineno}: {node.module}.{name.name}")
                continue
            if isinstance(found, ModuleType):
                modules[name.asname or name.name] = found
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules):
            continue
        if not hasattr(modules[node.value.id], node.attr):
            wrong.append(f"{path.name}, line {node.lineno}: {node.value.id}.{node.attr}")
    return wrong


def test_what_benchmarks_ask_for_is_there() -> None:
    files = sorted(BENCHMARKS.rglob("*.py"))
    assert len(files) > 10
    assert [name for path in files for name in missing(path)] == []
