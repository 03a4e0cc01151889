"""Who may import whom, read from the source; and what a supervisor must never load."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tamis
from tamis.tasks import DocumentBatch

ROOT = Path(tamis.__file__).parent
MODULES = {
    ".".join(p.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): p
    for p in sorted(ROOT.rglob("*.py"))
}
HEAVY = ("numpy", "pyarrow", "numba", "pandas", "torch", "ray", "backports", "bokeh", "boto3")
SUPERVISOR_SIDE = [
    *(m for m in MODULES if m.startswith(("tamis.engine.supervisor", "tamis.engine.run", "tamis.forecast"))),
    "tamis.engine.channel", "tamis.engine.job", "tamis.engine.ledger", "tamis.engine.monitor.database", "tamis.engine.worker.config",
    "tamis.backends.local", "tamis.pipeline", "tamis.tasks", *(m for m in MODULES if m.startswith("tamis.stages")),
    *(f"tamis.dedup.{m}" for m in (
        "alarms", "replay_tables.stages", "ids.removal", "index.index", "planning", "join_segments.passes", "solver_launcher", "state", "task_process", "workflow",
    )),
    *(m for m in MODULES if m.startswith("tamis.curation") and m not in ("tamis.curation.packer", "tamis.curation.scores", "tamis.curation.share_of_source")),
]  # fmt: skip
STAGES_FOR_THE_ENGINE = {
    "tamis.stages.base",
    "tamis.stages.io",
    "tamis.stages.notes",
    "tamis.stages.resources",
    "tamis.stages.file_partitioning",
}
# What observers may know of the engine: how to read what it wrote.
ENGINE_FOR_OBSERVERS = {"tamis.engine.ledger", "tamis.engine.run.identity", "tamis.engine.histograms"}

# room -> rooms it may import; a room may always import itself
ROOMS = {
    "errors": set(),
    "failures": set(),
    "_lazy": set(),
    "files": {"errors"},
    "secrets": set(),
    "sizes": {"errors"},
    "hints": set(),
    "signatures": set(),
    "terminal": set(),
    "stores": {"errors", "files", "secrets"},
    "kernels": {"errors", "files", "sizes"},
    "images": {"errors", "_lazy", "stores", "files", "kernels", "tasks", "formats"},
    "video": {"errors", "_lazy", "stores", "files", "sizes", "memory", "tasks", "formats"},
    "formats": {"errors", "failures", "_lazy", "stores", "files", "sizes", "kernels", "tasks"},
    "tasks": {"errors", "failures", "_lazy", "stores", "sizes", "kernels"},
    "memory": {"errors", "files", "sizes"},
    "forecast": {"errors", "files", "sizes", "memory", "formats"},
    "stages": {"errors", "failures", "_lazy", "stores", "files", "secrets", "sizes", "signatures", "kernels", "formats", "tasks", "memory", "video", "images", "dedup"},  # see PUBLIC_PATHS_OF_DEDUP
    "pipeline": {"errors", "backends", "stores", "files", "sizes", "hints", "terminal", "tasks", "stages"},
    "engine": {"errors", "failures", "stores", "files", "secrets", "sizes", "hints", "kernels", "formats", "tasks", "memory", "forecast", "stages"},
    "backends": {"errors", "failures", "hints", "terminal", "stores", "files", "secrets", "sizes", "kernels", "formats", "tasks", "memory", "engine"},
    "dedup": {"errors", "failures", "_lazy", "stores", "files", "secrets", "sizes", "hints", "kernels", "formats", "tasks", "images", "memory", "forecast", "stages", "pipeline", "engine", "backends"},
    "curation": {"errors", "_lazy", "stores", "files", "sizes", "kernels", "formats", "tasks", "memory", "stages", "pipeline", "engine", "backends", "dedup"},
}  # fmt: skip


class Imports(ast.NodeVisitor):
    """Imports of one module: those that run when it is imported, and those inside functions. Type checking only: neither.

    A text that is the name of a module of ours (in a registry, or for import_module) counts as an import inside a function; a text with
    something to be put in counts for all modules that it may become.
    """

    def __init__(self) -> None:
        self.top: set[str] = set()
        self.inside: set[str] = set()
        self._depth = 0

    def visit_Call(self, node: ast.Call) -> None:
        if "getLogger" not in ast.unparse(node.func):  # the name of a logger is none of a module
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            name = node.value.partition(":")[0]
            self.inside.update({name} & MODULES.keys() - {"tamis"})

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and str(first.value).startswith("tamis.") and len(node.values) == 2:
            self.inside.update(m for m in MODULES if m.startswith(str(first.value)))

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    def visit_Import(self, node: ast.Import) -> None:
        self._note(*(a.name for a in node.names))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports are absolute"
        module = node.module or ""
        names = [f"{module}.{a.name}" for a in node.names]
        self._note(*(n if n in MODULES else module for n in names))

    def _note(self, *names: str) -> None:
        (self.inside if self._depth else self.top).update(names)


@functools.cache
def imports_of(module: str) -> Imports:
    found = Imports()
    if module == "tamis._satellites":  # names satellites in strings, which is its purpose
        return found
    found.visit(ast.parse(MODULES[module].read_text()))
    return found


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def own(names: set[str]) -> set[str]:
    return {n for n in names if n.startswith("tamis.")}


def test_the_reader_of_imports_sees_both_kinds() -> None:
    found = imports_of("tamis.stores.s3")
    assert "tamis.errors" in found.top
    assert "boto3" in found.inside
    assert "boto3" not in found.top


def test_the_reader_of_imports_sees_names_of_modules_in_texts() -> None:
    assert {"tamis.formats.parquet.format", "tamis.formats.jsonl.format"} <= imports_of("tamis.formats.registry").inside
    assert "tamis.backends.forkserver" in imports_of("tamis.backends.local").inside


@pytest.mark.parametrize("name", sorted(ROOMS))
def test_rooms_import_only_what_lies_below(name: str) -> None:
    wrong = []
    for module in MODULES:
        if room(module) == name:
            wrong += [
                f"{module} imports {n}"
                for n in own(imports_of(module).top)
                if room(n) not in {name, "", "_satellites", *ROOMS[name]}
            ]
    assert wrong == []


# Inside the engine: who decides knows nobody, who works knows the orders, who watches knows both, who runs it all knows all.
ENGINE_ROOMS = {
    "supervisor": set(),
    "worker": {"supervisor"},
    "monitor": {"supervisor"},
    "run": {"supervisor", "worker", "monitor"},
}
# Inside a run: what it leaves and what it may use know what was asked for, and nothing of how a run goes.
ROOMS_OF_A_RUN = {
    "output": {"shard"},
    "budget": {"inputs", "settings"},
}
NOT_PURE = {
    "os",
    "io",
    "time",
    "socket",
    "subprocess",
    "threading",
    "multiprocessing",
    "pathlib",
    "shutil",
    "sqlite3",
    "random",
    *HEAVY,
}


@pytest.mark.parametrize("name", sorted(ENGINE_ROOMS))
def test_rooms_of_the_engine_import_only_what_lies_below(name: str) -> None:
    wrong = []
    for module in MODULES:
        if module.startswith(f"tamis.engine.{name}"):
            found = imports_of(module)
            other = {n.split(".")[2] for n in own(found.top | found.inside) if n.startswith("tamis.engine.")}
            wrong += [
                f"{module} imports {n}" for n in other & ENGINE_ROOMS.keys() if n not in {name, *ENGINE_ROOMS[name]}
            ]
    assert wrong == []


@pytest.mark.parametrize("name", sorted(ROOMS_OF_A_RUN))
def test_rooms_of_a_run_import_only_what_lies_below(name: str) -> None:
    modules = [module for module in MODULES if module.startswith(f"tamis.engine.run.{name}.")]
    found = {n for module in modules for n in own(imports_of(module).top | imports_of(module).inside)}
    assert modules
    assert {n.split(".")[3] for n in found if n.startswith("tamis.engine.run.")} <= {name, *ROOMS_OF_A_RUN[name]}


def test_the_supervisor_is_pure() -> None:
    """No files, no clock, no processes, nothing heavy: whatever is put into this folder can be simulated."""
    wrong = []
    for module in MODULES:
        if module.startswith("tamis.engine.supervisor"):
            found = imports_of(module)
            wrong += [f"{module} imports {n}" for n in found.top | found.inside if n.split(".")[0] in NOT_PURE]
            wrong += [f"{module} opens files" for _ in [0] if "open(" in MODULES[module].read_text()]
    assert wrong == []


def test_memory_knows_neither_stages_nor_the_engine_even_inside_functions() -> None:
    wrong = []
    for module in MODULES:
        if room(module) == "memory":
            found = imports_of(module)
            wrong += [
                f"{module} imports {n}"
                for n in own(found.top | found.inside)
                if room(n) in ("stages", "engine", "backends", "pipeline", "forecast")
            ]
    assert wrong == []


def test_the_engine_knows_stages_only_through_their_base_classes() -> None:
    wrong = []
    for module in MODULES:
        if room(module) == "engine":
            found = imports_of(module)
            wrong += [
                f"{module} imports {n}"
                for n in own(found.top | found.inside)
                if room(n) == "stages" and n not in STAGES_FOR_THE_ENGINE
            ]
    assert wrong == []


def test_nothing_below_imports_the_command_line_or_observers() -> None:
    wrong = []
    for module in MODULES:
        if room(module) in ROOMS:
            found = imports_of(module)
            wrong += [
                f"{module} imports {n}"
                for n in own(found.top | found.inside)
                if room(n) in ("cli", "observe", "recipe")
            ]
    assert wrong == []


def test_utils_are_for_users_alone() -> None:
    wrong = []
    for module in MODULES:
        if room(module) != "utils":
            found = imports_of(module)
            wrong += [f"{module} imports {n}" for n in own(found.top | found.inside) if room(n) == "utils"]
    assert wrong == []


def test_observers_read_the_run_directory_and_know_nothing_of_who_writes_it() -> None:
    wrong = []
    for module in MODULES:
        if room(module) == "observe":
            found = imports_of(module)
            wrong += [
                f"{module} imports {n}"
                for n in own(found.top | found.inside)
                if room(n)
                not in (
                    "observe",
                    "errors",
                    "_lazy",
                    "files",
                    "sizes",
                    "hints",
                    "terminal",
                    "stores",
                    "tasks",
                    "formats",
                    "images",
                    "video",
                    "",
                )
                and n != "tamis.yaml_text"
                and n not in ENGINE_FOR_OBSERVERS
            ]
    assert wrong == []


# Thin files at the paths that users know; the code behind them is in tamis/dedup.
PUBLIC_PATHS_OF_DEDUP = (
    "tamis.stages.deduplication",
    "tamis.stages.text.deduplication",
    "tamis.stages.text.modules.join_workflow",
)


def test_stages_and_deduplication_do_not_import_each_other_but_for_the_public_paths() -> None:
    wrong = []
    for module in MODULES:
        found = imports_of(module)
        for name in own(found.top | found.inside):
            if room(module) == "stages" and room(name) == "dedup" and not module.startswith(PUBLIC_PATHS_OF_DEDUP):
                wrong.append(f"{module} imports {name}")
            if room(module) == "dedup" and name.startswith(PUBLIC_PATHS_OF_DEDUP):
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_the_engine_and_what_it_runs_on_know_no_deduplication_and_nobody_below_a_curation() -> None:
    wrong = []
    for module in MODULES:
        if room(module) in ("engine", "backends", "memory", "pipeline", "stages", "dedup"):
            found = imports_of(module)
            rooms = ("curation",) if room(module) in ("stages", "dedup") else ("dedup", "curation")
            wrong += [f"{module} imports {n}" for n in own(found.top | found.inside) if room(n) in rooms]
    assert wrong == []


def test_formats_and_kernels_never_reach_up_even_inside_functions() -> None:
    wrong = []
    for module in MODULES:
        if room(module) in ("kernels", "formats", "errors", "sizes", "tasks"):
            found = imports_of(module)
            wrong += [
                f"{module} imports {n}"
                for n in own(found.inside)
                if room(n) in ("stages", "engine", "backends", "pipeline", "memory", "dedup")
            ]
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others_not_even_inside_functions() -> None:
    graph = {m: {n for n in imports_of(m).top | imports_of(m).inside if n in MODULES and n != m} for m in MODULES}
    while ends := [m for m, below in graph.items() if not below]:  # whoever imports nobody that is left is in no circle
        for m in ends:
            del graph[m]
        for below in graph.values():
            below.difference_update(ends)

    def below(module: str) -> set[str]:
        found, new = set(), {module}
        while new:
            new = {n for m in new for n in graph[m]} - found
            found |= new
        return found

    assert {m for m in graph if m in below(m)} == set()


# Names of a task that users' own stages read, as in the original, or that the pipeline sets.
USERS_KNOW = {"_metadata", "_stage_perf", "_set_task_id"}
PRIVATE_TO_BATCHES = {
    name
    for name in [*vars(DocumentBatch()), *vars(DocumentBatch)]
    if name.startswith("_") and not name.startswith("__") and name not in USERS_KNOW
}


def test_nobody_reads_the_private_fields_of_a_batch_from_another_room() -> None:
    assert {"_origin", "_rows", "_columns", "_identity", "_child"} <= PRIVATE_TO_BATCHES
    wrong = []
    for module, path in MODULES.items():
        text = path.read_text()
        if room(module) == "tasks" or not any(f".{name}" in text for name in PRIVATE_TO_BATCHES):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        reached = [n for n in nodes if isinstance(n, ast.Attribute) and n.attr in PRIVATE_TO_BATCHES]
        own = {n.attr for n in reached if isinstance(n.ctx, ast.Store) and ast.unparse(n.value) == "self"}
        own |= {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
        wrong += [
            f"{module}, line {n.lineno}: {ast.unparse(n)}"
            for n in reached
            if n.attr not in own and ast.unparse(n.value) not in ("self", "cls")
        ]
    assert wrong == []


def test_formats_are_told_apart_in_their_own_room_only() -> None:
    """Everybody else asks the records (tasks/lineage.py) or the registry; the engine does not even know the names of blocks of lines."""
    wrong = []
    for module, path in MODULES.items():
        if room(module) == "formats":
            continue
        text, blocks = path.read_text(), ("JsonlBlock", "TableBlock")
        for node in ast.walk(ast.parse(text)) if any(name in text for name in blocks) else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("isinstance", "issubclass")
            ) and any(name in ast.unparse(node) for name in blocks):
                wrong.append(f"{module}, line {node.lineno}: {ast.unparse(node)}")
        if room(module) == "engine":
            found = imports_of(module)
            wrong += [f"{module} imports {n}" for n in found.top | found.inside if n == "tamis.formats.jsonl.block"]
    assert wrong == []


def test_files_are_renamed_replaced_and_locked_in_one_place_only() -> None:
    """And nothing is unpickled but what comes over a socket from the process that started this one, or is signed with its key."""
    moving = {("os", n) for n in ("rename", "replace", "renames", "link", "symlink")} | {
        ("fcntl", "flock"),
        ("fcntl", "lockf"),
    }
    reading = {("pickle", "load"), ("pickle", "loads"), ("cloudpickle", "load"), ("cloudpickle", "loads")}
    found = {}
    for module, path in MODULES.items():
        text = path.read_text()
        if not any(".".join(call) in text for call in moving | reading):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called = (node.value.id, node.attr)
                if called in moving | reading:
                    found.setdefault(module, set()).add(".".join(called))
    assert found.pop("tamis.files") == {"os.rename", "os.replace", "os.link", "fcntl.flock"}
    assert found.pop("tamis.backends.client") == found.pop("tamis.backends.client_worker") == {"cloudpickle.loads"}
    assert found == {"tamis.backends.preload": {"pickle.loads"}, "tamis.engine.run.results": {"pickle.loads"}}


def test_the_supervisor_side_loads_nothing_heavy() -> None:
    code = f"import sys\nfor m in {SUPERVISOR_SIDE!r}: __import__(m)\nprint([h for h in {HEAVY!r} if h in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT.parent), "PATH": ""},
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_no_field_of_a_dataclass_is_annotated_with_what_is_loaded_later() -> None:
    """From Python 3.15 on `@dataclass` looks up `pa.Array`, which would load Arrow wherever the module is imported."""
    found = []
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        late = {
            name.asname or name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "tamis._lazy"
            for name in node.names
        }
        for node in ast.walk(tree) if late else ():
            if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
                fields = [f for f in node.body if isinstance(f, ast.AnnAssign)]
                found += [
                    f"{module}: {ast.unparse(f)}" for f in fields if ast.unparse(f.annotation).partition(".")[0] in late
                ]
    assert found == []


def test_importing_tamis_loads_nothing_of_it() -> None:
    code = "import sys, tamis; print(sorted(m for m in sys.modules if m.startswith('tamis.')))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT.parent), "PATH": ""},
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_the_public_names_are_these() -> None:
    assert tamis.__all__ == [
        "CompositeStage", "DocumentBatch", "EmptyTask", "FileGroupTask", "InProcessExecutor", "LocalExecutor", "Pipeline",
        "ProcessingStage", "Resources", "Secret", "Sequential", "TamisError", "Task", "ToBackend", "__version__", "memory", "processing_stage",
    ]  # fmt: skip


@pytest.mark.parametrize("name", tamis.__all__)
def test_every_public_name_can_be_used(name: str) -> None:
    assert getattr(tamis, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tamis' has no attribute 'Nonsense'"):
        tamis.Nonsense  # noqa: B018


READING = re.compile(r"read in this order:(.*?)\n\n", re.S)


def test_what_to_read_first_is_there() -> None:
    found = READING.search((ROOT.parents[1] / "CONTRIBUTING.md").read_text())
    assert found is not None
    paths = re.findall(r"`([\w/]+\.py)`", found[1])
    assert len(paths) >= 5
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_every_format_is_a_folder_and_a_line() -> None:
    from tamis._satellites import SATELLITES
    from tamis.formats import registry

    listed = {entry.module for entry in [*registry.LINES.values(), *registry.TABLES.values()]} - set(SATELLITES)
    folders = {path.parent.name for path in (ROOT / "formats").glob("*/format.py")}
    assert listed == {f"tamis.formats.{name}.format" for name in folders}


def test_files_are_called_by_what_is_in_them_but_where_users_know_another_name() -> None:
    """`utils.py` and the like are paths of the original's, and stay only for these."""
    known = json.loads((ROOT.parents[1] / "tests" / "surface" / "surface.json").read_text())
    public = {part for name in known["names"] for part in _with_parents(name["module"])}
    nameless = {m for m in MODULES if m.rpartition(".")[2] in ("utils", "util", "common", "helpers", "misc")}
    assert nameless - public == set()


def _with_parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
