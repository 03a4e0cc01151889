"""Print figures about the source tree: sizes, complexity, docstrings, names, types, cycles between packages.

It measures and judges nothing: no test depends on these numbers. `--list NAME` prints what one of them counts.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "src" / "tamis"
MAX_LINE = 120
MAX_COMPLEXITY = 15
# Of functions and methods: a docstring that begins so names a thing instead of saying what is done. A plural noun, an
# exception, a tuple or a parameter in the first place does so, too.
NOUN_CLAUSE = re.compile(
    r"(What|Whether|Which|Who|Where|When|How|Why|The|A|An|One|Every|Each|All|Those|These|That|This|It|Its|Of|As|For|In|Everything|"
    r"Nothing|None|Whatever|Some|Several|Two|Both|No|So|Such|Only|Up|From|With|Without|About|Also|Like|Or|And|At|By|Before|After|"
    r"Until|Position|Text|Number|Their|Never|More|Whole|Anew|Once|Behind|Beside|Private|Largest|Last|First|[A-Z][A-Za-z]*(Error|Fault)|"
    r"(?!Process\b|[A-Z][a-z]*ss\b)[A-Z][A-Za-z-]*s)\b|[(`\d\[|$-]"
)
# Class names that stand for one thing in several modules, and bases with one heir elsewhere, that are meant to be so.
REASONS = {
    "IdentifyDuplicatesStage": "NeMo Curator has one for each kind of deduplication",
    "VideoMetadata": "NeMo Curator has one for tasks and one for the decoder",
    "TableWriter": "the class of a format's module that the registry expects (formats/base.py)",
    "ClusterExecutor": "a cluster engine subclasses it (CONTRIBUTING, Add an executor)",
    "FilePartitioningStage": "as in NeMo Curator, where users rely on the subclass",
    "Origin": "a protocol that widens another",
    "Summary": "a typed dict that another widens",
    "TableBlock": "every table of rows is one; records that were kept also have the hashes they had",
    "Records": "solvers take records with or without those of an index",
    "WorkflowRunResult": "as in NeMo Curator, where users rely on the subclass",
}
BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.With,
    ast.Assert,
    ast.IfExp,
    ast.comprehension,
)


@dataclass
class Module:
    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: set[str] = field(default_factory=set)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def modules() -> dict[str, Module]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        found[name] = Module(name, path, text, ast.parse(text))
    for module in found.values():
        module.imports = set(_imported(module, found))
    return found


def _imported(module: Module, known: dict[str, Module]) -> Iterator[str]:
    """Modules of the tree that a module imports, inside functions too; not those for type checkers alone."""
    skipped = {
        id(child)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(module.tree):
        if id(node) in skipped:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name in known and name != module.name)


def functions(module: Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
    def walk(
        node: ast.AST, prefix: str, owner: ast.ClassDef | None
    ) -> Iterator[tuple[str, ast.FunctionDef, ast.ClassDef | None]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}.{child.name}", child, owner  # type: ignore[misc]
                yield from walk(child, f"{prefix}.{child.name}", None)
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}.{child.name}", child)
            else:
                yield from walk(child, prefix, owner)

    yield from walk(module.tree, module.name, None)


def complexity(function: ast.AST) -> int:
    """McCabe's number, with boolean operators counted as branches."""
    total = 1
    for node in ast.walk(function):
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, BRANCHES) and not isinstance(node, ast.With):
            total += 1
    return total


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(d) for d in function.decorator_list)


def noun_clauses(found: dict[str, Module]) -> tuple[list[str], int]:
    noun, total = [], 0
    for module in found.values():
        for name, function, _ in functions(module):
            text = ast.get_docstring(function)
            if text is None or is_property(function):
                continue
            total += 1
            if NOUN_CLAUSE.match(text):
                noun.append(f"{name}: {text.splitlines()[0]}")
    return noun, total


def repeated_classes(found: dict[str, Module]) -> list[str]:
    places = defaultdict(list)
    for module in found.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)
    return [f"{name}: {', '.join(where)}{_reason(name)}" for name, where in sorted(places.items()) if len(where) > 1]


def _reason(name: str) -> str:
    return f" ({REASONS[name]})" if name in REASONS else ""


def _count(entries: list[str], are_explained: bool) -> str:
    n = sum(entry.endswith(")") for entry in entries)
    return f"{len(entries)} ({n} with a reason)" if are_explained and n else str(len(entries))


def inherited_once(found: dict[str, Module]) -> list[str]:
    """Classes that one class in another file inherits from, and no other."""
    home, heirs = {}, defaultdict(list)
    for module in found.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                home.setdefault(node.name, module.name)
                for base in node.bases:
                    owner, _, name = ast.unparse(base).partition("[")[0].rpartition(".")
                    if owner and not owner.startswith("tamis"):  # pd.Index is none of ours
                        continue
                    heirs[name].append((node.name, module.name))
    return [
        f"{home[base]}.{base} <- {of[0][1]}.{of[0][0]}{_reason(base)}"
        for base, of in sorted(heirs.items())
        if base in home and len(of) == 1 and of[0][1] != home[base]
    ]


def private_once(found: dict[str, Module]) -> tuple[list[str], int]:
    """Private functions that are mentioned once besides their definition."""
    once, total = [], 0
    for module in found.values():
        words = Counter(re.findall(r"\b_[A-Za-z]\w*", module.text))
        for name, function, _ in functions(module):
            if function.name.startswith("_") and not function.name.startswith("__"):
                total += 1
                if words[function.name] <= 2:
                    once.append(name)
    return once, total


def cycles(found: dict[str, Module]) -> list[str]:
    """Return groups of packages that import each other in circles, imports inside functions included.

    Modules that only re-export, at paths of NeMo Curator, are left out.
    """

    def package(name: str) -> str:
        parts = name.split(".")
        return parts[1] if len(parts) > 1 else ""

    graph: dict[str, set[str]] = defaultdict(set)
    for module in found.values():
        if not _only_re_exports(module):
            graph[package(module.name)] |= {package(i) for i in module.imports} - {package(module.name), ""}

    def reach(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            for other in graph[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        return seen

    reached = {name: reach(name) for name in list(graph)}
    groups = {frozenset({n, *(m for m in reached[n] if n in reached.get(m, set()))}) for n in reached}
    return [", ".join(sorted(group)) for group in groups if len(group) > 1]


def _only_re_exports(module: Module) -> bool:
    """Return True if a module has nothing but a docstring, imports and `__all__`."""
    return all(
        isinstance(node, (ast.Import, ast.ImportFrom))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
        for node in module.tree.body
    )


def figures() -> dict[str, tuple[str, list[str]]]:
    """Each figure by name: as text, and what it counts."""
    found = modules()
    sizes = [len(m.lines) for m in found.values()]
    busy = [
        f"{name}: {n}" for m in found.values() for name, f, _ in functions(m) if (n := complexity(f)) > MAX_COMPLEXITY
    ]
    noun, n_docstrings = noun_clauses(found)
    importers = Counter(name for m in found.values() for name in m.imports)
    lonely = [name for name in found if importers[name] <= 1]
    once, n_private = private_once(found)

    def lines(pattern: str) -> list[str]:
        expression = re.compile(pattern)
        return [
            f"{m.name}:{i}: {x.strip()}"
            for m in found.values()
            for i, x in enumerate(m.lines, 1)
            if expression.search(x)
        ]

    wide = [f"{m.name}:{i}" for m in found.values() for i, line in enumerate(m.lines, 1) if len(line) > MAX_LINE]
    counted = {
        f"functions of complexity > {MAX_COMPLEXITY}": busy,
        "class names defined twice or more": repeated_classes(found),
        "bases inherited by one class in another file": inherited_once(found),
        "modules with at most one importer": lonely,
        "lines with Any": lines(r"\bAny\b"),
        "lines with dict[str, Any] or Mapping[str, Any]": lines(r"(dict|Mapping)\[str, Any\]"),
        f"lines over {MAX_LINE}": wide,
        "fmt: skip": lines(r"fmt: skip"),
        "video(s), image(s)": lines(r"(?i)(video|image)s?(?![a-z])"),
        "cycles between packages": cycles(found),
    }
    table = {"files / lines / median": (f"{len(sizes)} / {sum(sizes)} / {statistics.median(sizes):.0f}", [])}
    table["noun-clause docstrings"] = (f"{len(noun)} of {n_docstrings} ({len(noun) / max(1, n_docstrings):.1%})", noun)
    table["private functions used once"] = (f"{len(once)} of {n_private}", once)
    explained = ("class names", "bases inherited")
    return table | {name: (_count(of, name.startswith(explained)), of) for name, of in counted.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--list", default="", metavar="NAME", help="print what the figures with this in their name count"
    )
    options = parser.parse_args()
    for name, (value, of) in figures().items():
        if not options.list:
            print(f"{name:52s} {value}")
        elif options.list in name:
            print("\n".join(of))
    return 0


if __name__ == "__main__":
    sys.exit(main())
