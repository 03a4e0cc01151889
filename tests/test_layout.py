"""The layout of the source, as far as the import contracts (.importlinter, `make lint`) cannot see it.

They check who may import whom. Here: names of modules in strings, import cycles between modules, what a process loads,
the purity of the supervisor, and operations that one module does for all others.
"""

from __future__ import annotations

import ast
import configparser
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import tamis
from tamis.tasks import DocumentBatch

ROOT = Path(tamis.__file__).parent
REPOSITORY = ROOT.parents[1]
MODULES = {
    ".".join(p.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): p
    for p in sorted(ROOT.rglob("*.py"))
}


class Imports(ast.NodeVisitor):
    """The imports of one module, those inside functions included and those for type checkers excluded.

    `named`: modules of Tamis whose names are strings (in a registry, or for `import_module`).
    """

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.named: set[str] = set()

    def visit_Call(self, node: ast.Call) -> None:
        if "getLogger" not in ast.unparse(node.func):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.named |= {node.value.partition(":")[0]} & MODULES.keys() - {"tamis"}

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.modules |= {a.name for a in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports are absolute"
        names = {f"{node.module}.{a.name}" for a in node.names}
        self.modules |= names & MODULES.keys()
        if names - MODULES.keys():
            self.modules.add(node.module or "")


@functools.cache
def imports_of(module: str) -> Imports:
    imports = Imports()
    imports.visit(ast.parse(MODULES[module].read_text()))
    return imports


def nodes(module: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(MODULES[module].read_text()))


def is_below(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def test_the_visitor_sees_imports_inside_functions_and_names_in_strings() -> None:
    assert {"tamis.errors", "boto3"} <= imports_of("tamis.stores.s3").modules
    assert "tamis.formats.parquet.format" in imports_of("tamis.formats.registry").named


# -- names of modules in strings -------------------------------------------------------------------------------------
def contracts() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",), inline_comment_prefixes=None)
    parser.read(REPOSITORY / ".importlinter")
    return parser


def layer_numbers() -> dict[str, int]:
    layers = contracts()["importlinter:contract:layers"]["layers"].split("\n")
    return {name.strip(): i for i, layer in enumerate(reversed(layers)) for name in re.split("[|:]", layer)}


NAMES_ANY_MODULE = {
    "tamis._satellites",
    # Recipes, and jobs that build stages as recipes do, name the classes of all packages.
    "tamis.cli.media.video_job",
    "tamis.recipe.step_names",
    "tamis.recipe.targets",
}


def test_names_of_modules_in_strings_follow_the_layers_too() -> None:
    number, wrong = layer_numbers(), []
    for module in MODULES.keys() - NAMES_ANY_MODULE - {"tamis"}:
        here = number[module.split(".")[1]]
        wrong += [f"{module} names {n}" for n in imports_of(module).named if number[n.split(".")[1]] > here]
    assert wrong == []


def test_only_the_manifest_names_satellites_in_strings() -> None:
    contract = contracts()["importlinter:contract:satellites"]
    satellites, wrong = contract["protected_modules"].split(), []
    assert contract["allowed_importers"].split() == satellites
    for module in MODULES.keys() - NAMES_ANY_MODULE:
        if not is_below(module, satellites):
            wrong += [f"{module} names {n}" for n in imports_of(module).named if is_below(n, satellites)]
    assert wrong == []


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions and names in strings included; a cycle would make the order of imports matter."""
    graph = {m: ((imports_of(m).modules | imports_of(m).named) & MODULES.keys()) - {m} for m in MODULES}
    graph["tamis._satellites"] = set()  # names them so that others need not
    TopologicalSorter(graph).prepare()  # raises CycleError, which lists the modules of a cycle


# -- what a process loads --------------------------------------------------------------------------------------------
HEAVY = ("numpy", "pyarrow", "numba", "pandas", "torch", "ray", "backports", "bokeh", "boto3")
SUPERVISOR_PACKAGES = (
    "tamis.backends.local",
    "tamis.curation",
    "tamis.engine.channel",
    "tamis.engine.job",
    "tamis.engine.ledger",
    "tamis.engine.monitor.database",
    "tamis.engine.run",
    "tamis.engine.supervisor",
    "tamis.engine.worker.config",
    "tamis.forecast",
    "tamis.pipeline",
    "tamis.stages",
    "tamis.tasks",
    *(f"tamis.dedup.{name}.procedure" for name in ("ids", "join_segments", "substrings")),
    *(
        f"tamis.dedup.{name}"
        for name in ("alarms", "index.index", "key_comparison", "planning", "replay_tables.stages")
    ),
    *(f"tamis.dedup.{name}" for name in ("solver_launcher", "state", "task_process", "workflow")),
)
IN_WORKERS_ONLY = (
    "tamis.curation.key_order",
    "tamis.curation.packer",
    "tamis.curation.scores",
    "tamis.curation.sequences",
    "tamis.curation.source_limits",
    "tamis.curation.token_packer",
    "tamis.tasks.columns",
    "tamis.tasks.frames",
    "tamis.tasks.returned_data",
)


def run_python(code: str) -> str:
    env = {"PYTHONPATH": str(ROOT.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    return done.stdout.strip()


def test_the_supervisor_process_loads_nothing_heavy() -> None:
    modules = [m for m in MODULES if is_below(m, SUPERVISOR_PACKAGES) and not is_below(m, IN_WORKERS_ONLY)]
    loaded = f"[h for h in {HEAVY!r} if h in sys.modules]"
    assert run_python(f"import sys\nfor m in {modules!r}: __import__(m)\nprint({loaded})") == "[]"


def test_importing_tamis_loads_none_of_its_modules() -> None:
    assert run_python("import sys, tamis; print([m for m in sys.modules if m.startswith('tamis.')])") == "[]"


def test_no_dataclass_field_is_annotated_with_a_lazy_import() -> None:
    """From Python 3.15 on `@dataclass` looks up `pa.Array`, which would load Arrow wherever the module is imported."""
    wrong = []
    for module in MODULES:
        if "tamis._lazy" not in imports_of(module).modules:
            continue
        tree = ast.parse(MODULES[module].read_text())
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "tamis._lazy"]
        lazy = {name.asname or name.name for node in imports for name in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
                fields = [ast.unparse(f.annotation) for f in node.body if isinstance(f, ast.AnnAssign)]
                wrong += [f"{module}: {annotation}" for annotation in fields if annotation.partition(".")[0] in lazy]
    assert wrong == []


# -- what only some modules do ---------------------------------------------------------------------------------------
IMPURE = {"fcntl", "io", "multiprocessing", "os", "pathlib", "random", "shutil", "socket", "sqlite3", "subprocess"}
IMPURE |= {"threading", "time", *HEAVY}


def test_the_supervisor_is_pure() -> None:
    """No files, clock, processes or heavy libraries: everything in this folder can be simulated."""
    wrong = []
    for module in MODULES:
        if module.startswith("tamis.engine.supervisor"):
            wrong += [f"{module} imports {n}" for n in imports_of(module).modules if n.split(".")[0] in IMPURE]
            wrong += [f"{module} opens files"] if "open(" in MODULES[module].read_text() else []
    assert wrong == []


USERS_KNOW = {"_metadata", "_stage_perf", "_set_task_id"}  # of tasks, in the original too
PRIVATE_TO_BATCHES = {
    name
    for name in [*vars(DocumentBatch()), *vars(DocumentBatch), *vars(DocumentBatch.__base__)]
    if name.startswith("_") and not name.startswith("__") and name not in USERS_KNOW
}


def test_private_fields_of_a_batch_are_read_in_tasks_only() -> None:
    assert {"_origin", "_rows", "_columns", "_identity", "_child"} <= PRIVATE_TO_BATCHES
    wrong = []
    for module, path in MODULES.items():
        text = path.read_text()
        if module.startswith("tamis.tasks") or not any(f".{name}" in text for name in PRIVATE_TO_BATCHES):
            continue
        tree = list(nodes(module))
        attributes = [n for n in tree if isinstance(n, ast.Attribute) and n.attr in PRIVATE_TO_BATCHES]
        of_self = {n.attr for n in attributes if isinstance(n.ctx, ast.Store) and ast.unparse(n.value) == "self"}
        of_self |= {n.name for n in tree if isinstance(n, ast.FunctionDef)}
        wrong += [
            f"{module}, line {n.lineno}: {ast.unparse(n)}"
            for n in attributes
            if n.attr not in of_self and ast.unparse(n.value) not in ("self", "cls")
        ]
    assert wrong == []


def test_record_formats_are_distinguished_in_formats_only() -> None:
    """Other packages ask the lineage (tasks/lineage.py) or the registry."""
    wrong, blocks = [], ("JsonlBlock", "TableBlock")
    for module, path in MODULES.items():
        if module.startswith("tamis.formats") or not any(name in path.read_text() for name in blocks):
            continue
        for node in nodes(module):
            is_check = isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
            if is_check and any(name in ast.unparse(node) for name in blocks):
                wrong.append(f"{module}: {ast.unparse(node)}")
    assert wrong == []


MOVES = {"os.rename", "os.replace", "os.renames", "os.link", "os.symlink", "fcntl.flock", "fcntl.lockf"}
UNPICKLES = {"pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads"}


def test_files_are_renamed_and_locked_in_one_module_and_few_modules_unpickle() -> None:
    """Unpickled is only what comes over a socket from the process that started this one, or is signed with its key."""
    uses: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if any(name in path.read_text() for name in MOVES | UNPICKLES):
            attributes = {ast.unparse(n) for n in nodes(module) if isinstance(n, ast.Attribute)}
            if used := attributes & (MOVES | UNPICKLES):
                uses[module] = used
    assert uses == {
        "tamis.files": {"os.rename", "os.replace", "os.link", "fcntl.flock"},
        "tamis.backends.client": {"cloudpickle.loads"},
        "tamis.backends.client_worker": {"cloudpickle.loads"},
        "tamis.backends.preload": {"pickle.loads"},
        "tamis.engine.run.results": {"pickle.loads"},
    }


# -- names -----------------------------------------------------------------------------------------------------------
def test_the_public_names_are_these() -> None:
    assert tamis.__all__ == [
        "CompositeStage",
        "DocumentBatch",
        "EmptyTask",
        "FileGroupTask",
        "InProcessExecutor",
        "LocalExecutor",
        "Pipeline",
        "ProcessingStage",
        "Resources",
        "Secret",
        "Sequential",
        "TamisError",
        "Task",
        "ToBackend",
        "__version__",
        "memory",
        "processing_stage",
    ]


@pytest.mark.parametrize("name", tamis.__all__)
def test_every_public_name_can_be_used(name: str) -> None:
    assert getattr(tamis, name) is not None


def test_dir_lists_the_public_names() -> None:
    assert dir(tamis) == sorted(tamis.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tamis' has no attribute 'Nonsense'"):
        tamis.Nonsense  # noqa: B018


def test_files_that_contributing_recommends_exist() -> None:
    match = re.search(r"read in this order:(.*?)\n\n", (REPOSITORY / "CONTRIBUTING.md").read_text(), re.S)
    assert match is not None
    paths = re.findall(r"`([\w/]+\.py)`", match[1])
    assert len(paths) >= 5
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_modules_are_named_after_their_content() -> None:
    """`utils.py` and the like are paths of the original, and exist only there."""
    surface = json.loads((REPOSITORY / "tests" / "surface" / "surface.json").read_text())
    public = {
        name["module"].rsplit(".", n)[0] for name in surface["names"] for n in range(name["module"].count(".") + 1)
    }
    nameless = {m for m in MODULES if m.rpartition(".")[2] in ("utils", "util", "common", "helpers", "misc")}
    constants_only = {"tamis.stages.deduplication.fuzzy.utils"}  # of the original, too; the surface lists no constants
    assert nameless - public == constants_only
