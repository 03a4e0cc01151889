"""Recipes: YAML files that describe a run. Covers their structure and settings.

    name: clean
    input: ???                                  # given with --set input=...
    stages:
      - _target_: tamis.stages.text.io.reader.JsonlReader
        file_paths: ${input}
      - _target_: tamis.stages.text.filters.ScoreFilter
        filter_obj:
          _target_: tamis.stages.text.filters.heuristic.WordCountFilter
          min_words: 50
      - _target_: tamis.stages.text.io.writer.JsonlWriter
        path: ${env:OUT,out}
    settings:
      memory: 2GB

`yaml_text` reads the YAML, `targets` decides what may be built. Every error names file, line and field. All target
names in the file are checked before the first module is imported or the first object built.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tamis import _satellites, secrets
from tamis._dataclasses import dataclass
from tamis.backends.registry import ALIASES, EXECUTORS, LOCAL
from tamis.engine.run.settings import SETTINGS, SettingValue
from tamis.errors import MissingExtra, PipelineError, RecipeError, TamisError, UsageError
from tamis.formats.registry import FILE_TYPES
from tamis.recipe.targets import OPTIONAL, TARGET, Targets, check_allowed_name
from tamis.signatures import accepted
from tamis.yaml_text import Located, Node, References, override, parse, read_text, suggest

if TYPE_CHECKING:
    from tamis.observe.alerts.parse import Section
    from tamis.pipeline import Pipeline

TOP_LEVEL = (
    "name",
    "description",
    "stages",
    "workflow",
    "steps",
    "sources",
    "write",
    "settings",
    "alerts",
    "ray_client",
    "backend",
    "execution_mode",
)
# What recipes of NeMo Curator carry for Hydra and for people.
NOT_READ = ("defaults", "hydra", "documentation")
RECIPE_SETTINGS = {name: setting for name, setting in SETTINGS.items() if setting.in_recipes}


@dataclass
class Recipe:
    """A description of a run with its objects built: stages, or a workflow. Read from a file, or made by a command."""

    name: str
    stages: list[object] = field(default_factory=list)
    description: str | None = None
    settings: dict[str, SettingValue] = field(default_factory=dict)
    workflow: object | None = None
    backend: str = LOCAL
    ray_client: object | None = None
    alerts: Section | None = None  # docs/guides/alerts.md; the command decides what of it may be used
    schema: dict[str, str] | None = None  # types of columns, for a Parquet writer
    file: str = ""  # for messages

    def pipeline(self) -> Pipeline:
        """Return the stages as a pipeline, checked; raise UsageError for a recipe with a workflow."""
        from tamis.pipeline import Pipeline

        if self.workflow is not None:
            raise UsageError(
                f"{self.file}: its 'workflow:' is for `tamis run` and `tamis plan`; this command takes 'stages:'"
            )
        pipeline = Pipeline(self.name, self.description)
        try:
            for stage in self.stages:
                pipeline.add_stage(stage)  # type: ignore[arg-type]
            if self.schema is not None:
                _set_schema(pipeline, self.schema)
            pipeline.build()
        except TamisError:
            raise
        except Exception as exc:  # methods of the user's stages run here
            why = secrets.hide(f"{type(exc).__name__}: {exc}")
            raise PipelineError(f"{self.file or self.name}: the pipeline cannot be built: {why}") from exc
        return pipeline


def _set_schema(pipeline: Pipeline, schema: dict[str, str]) -> None:
    from tamis.stages.text.io.writer import ParquetWriter

    writer = pipeline.stages[-1]
    if not isinstance(writer, ParquetWriter):
        raise UsageError("settings.schema is for a ParquetWriter at the end of the recipe; remove it")
    if writer.schema is None:
        writer.schema = schema


def load_recipe(
    path: str | os.PathLike[str],
    allow: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, str] | None = None,
    text: str | None = None,
    trust_remote_code: bool = False,
    values: Mapping[str, SettingValue] | None = None,
) -> Recipe:
    """Read, check and build the recipe at `path`.

    `allow`: modules it may load besides those of Tamis. `overrides`: from `--set key=value`, text as it would be
    written in the recipe. `values`: literal values of its fields, by the same keys. `text`: the recipe itself; then
    `path` is only its name. `trust_remote_code`: whether stages may run code that comes with models.
    """
    file = os.fspath(path)
    root = parse(read_text(file) if text is None else text, file)
    if not isinstance(root.value, dict):
        raise RecipeError("expected a mapping with 'name:' and 'stages:' or 'workflow:'", file=file, line=root.line)
    if "steps" in root.value:
        from tamis.recipe.step_names import expand

        expand(root, file)  # before --set, which may change a parameter of any step by its place
    for key, text in (overrides or {}).items():
        override(root, key, text, file)
    for key, value in (values or {}).items():
        _set_literal(root.value, key, value)
    targets = Targets([check_allowed_name(module) for module in allow], trust_remote_code)
    return _Loader(file, root, environ, targets).load()


def _set_literal(root: dict[str, Node], key: str, value: SettingValue) -> None:
    """Set a field at the top, or in a mapping there ("write.format"), to a value in which nothing is a reference."""
    *parts, name = key.split(".")
    fields = root
    for part in parts:
        mapping = fields[part].value if part in fields else None
        inner = mapping if isinstance(mapping, dict) else {}
        fields[part] = Node(inner)
        fields = inner
    fields[name] = Node(
        value.replace("${", "$${") if isinstance(value, str) else value, plain=not isinstance(value, str)
    )


class WorkflowSequence:
    """Several workflows behind one `run`, which gives the result of the last."""

    def __init__(self, workflows: Sequence[object]) -> None:
        self.workflows = list(workflows)

    @property
    def output_path(self) -> str:
        """The output of the last workflow, where alerts, dashboard and metrics look for the run."""
        return str(getattr(self.workflows[-1], "output_path", ""))

    def run(self, **settings: Any) -> Any:
        runs = [cast("Any", workflow).run for workflow in self.workflows]
        results = [run(**accepted(run, settings)) for run in runs]
        return results[-1]


class _Loader:
    def __init__(self, file: str, root: Node, environ: Mapping[str, str], targets: Targets) -> None:
        assert isinstance(root.value, dict)
        for key in NOT_READ:
            root.value.pop(key, None)
        self.file, self.references = file, References(root.value, environ, file)
        self.whole = Located(root, "", self.references)
        self.top = self.whole.fields()
        self.targets = targets

    def _usual_backend(self) -> str:
        """Return the backend of a recipe that names none: a cluster that it describes is used, if Ray is installed."""
        described = "ray_client" in self.top and self.top["ray_client"].node.value is not None
        return "ray" if described and find_spec("ray") is not None else LOCAL

    def load(self) -> Recipe:
        if "stages" in self.top:
            self._name_targets(self.top["stages"])
        unknown = {key: at for key, at in self.top.items() if key not in TOP_LEVEL}
        self._check_structure(unknown)
        for key in ("stages", "workflow", "steps", "input", "sources", "ray_client"):
            if key in self.top:
                self.targets.check(self.top[key])
        settings, schema = self.settings()
        alerts = self.alerts()
        backend = self.choice("backend", (*EXECUTORS, *ALIASES)) or self._usual_backend()
        self._add_mode(settings)
        name = self.text("name") if "name" in self.top else Path(self.file).stem
        self._resolve_references()
        self._check_used(unknown)
        return Recipe(
            name=name,
            description=self.text("description") if "description" in self.top else None,
            stages=self.stages() if "stages" in self.top else [],
            settings=settings,
            workflow=self.curation(name) if "steps" in self.top else self.workflow(),
            backend=backend,
            ray_client=self.one("ray_client", "start"),
            alerts=alerts,
            schema=schema,
            file=self.file,
        )

    def _check_structure(self, unknown: Mapping[str, Located]) -> None:
        """Refuse unknown parts, several kinds of a run or none, and parts that do not belong to its kind."""
        for key, at in unknown.items():
            if isinstance(at.node.value, (list, dict)):
                raise at.fail(f"unknown top-level field {key!r}{suggest(key, list(TOP_LEVEL))}")
        n_kinds = sum(key in self.top for key in ("stages", "workflow", "steps"))
        if n_kinds != 1:
            got = "both" if n_kinds > 1 else "neither"
            raise self.whole.fail(f"expected either 'stages:', 'workflow:' or 'steps:', got {got}")
        for key in ("write", "sources"):
            if key in self.top and "steps" not in self.top:
                raise self.top[key].fail(f"'{key}:' goes with 'steps:'; elsewhere stages read and write")

    def _add_mode(self, settings: dict[str, SettingValue]) -> None:
        """Add `execution_mode:`, which recipes of NeMo Curator have, to the settings."""
        mode = self.choice("execution_mode", SETTINGS["mode"].kind.choices)
        if mode is None:
            return
        if settings.get("mode", mode) != mode:
            raise self.top["execution_mode"].fail("execution_mode and settings.mode differ; keep one")
        settings["mode"] = mode

    def _resolve_references(self) -> None:
        """Replace every reference once, so that a missing value is reported before anything is built."""
        for at in (inside for key, part in self.top.items() if key in TOP_LEVEL for inside in part.all()):
            if not isinstance(at.node.value, (list, dict)):
                at.scalar()

    def _check_used(self, unknown: Mapping[str, Located]) -> None:
        """Refuse scalars of unknown names to which nothing refers: misspelt fields."""
        ends = ("input", "output") if "steps" in self.top else ()
        for key, at in unknown.items():
            if key not in self.references.used and key not in ends:
                hint = suggest(key, list(TOP_LEVEL))
                raise at.fail(f"unknown top-level field {key!r}, and nothing refers to ${{{key}}}{hint}")

    def text(self, key: str) -> str:
        value = self.top[key].scalar()
        if value is None or isinstance(value, bool):
            raise self.top[key].fail(f"expected text, got {value!r}; put it into quotes")
        return str(value)

    def choice(self, key: str, choices: Sequence[str]) -> str | None:
        if key not in self.top:
            return None
        value = self.text(key)
        if value not in choices:
            raise self.top[key].fail(f"unknown {key} {value!r}{suggest(value, list(choices))}")
        return value

    def stages(self) -> list[object]:
        at = self.top["stages"]
        if not isinstance(at.node.value, list) or not at.node.value:
            raise at.fail("expected a list of stages, each starting with '- _target_:'")
        return [self.built(item, ("process", "decompose"), "a stage") for item in at.items()]

    def curation(self, name: str) -> object:
        """Build the steps as a Curation, from `input:` to `output:`, written according to `write:`."""
        from tamis.curation import Curation
        from tamis.curation.steps import LeftOut
        from tamis.curation.writing import make_writing

        at = self.top["steps"]
        steps: list[object] = []
        left_out: list[LeftOut] = []
        for item in at.items():
            step = self._step(item)
            (left_out if isinstance(step, LeftOut) else steps).append(step)  # type: ignore[arg-type]
        ends = {
            f"{key}_path": self.targets.build(self.top[key])
            for key in ("input", "output")
            if key in self.top and key not in self.references.used
        }
        if "sources" in self.top:
            ends["sources"] = self.targets.build(self.top["sources"])
        writing = self.writing()
        try:
            make_writing(**writing)
        except UsageError as exc:
            raise self.top["write"].fail(str(exc)) from None
        try:
            return Curation(steps, name=name, left_out=left_out, **ends, **writing)  # type: ignore[arg-type]
        except UsageError as exc:
            raise at.fail(str(exc)) from None

    def _step(self, at: Located) -> object:
        """Build a step; one marked `_optional_` that needs a package which is not installed is a LeftOut."""
        from tamis.curation.steps import LeftOut

        fields = at.node.value if isinstance(at.node.value, dict) else {}
        mark = at.fields().get(OPTIONAL)
        fields.pop(OPTIONAL, None)
        is_optional = mark is not None and mark.scalar()
        if mark is not None and not isinstance(is_optional, bool):
            raise mark.fail(f"expected true or false, got {is_optional!r}")
        try:
            return self.built(at, ("process", "decompose", "removal"), "a step")
        except RecipeError as exc:
            if not is_optional or not isinstance(exc.__cause__, MissingExtra):
                raise
            from tamis.recipe.step_names import name_of

            return LeftOut(name_of(str(at.fields()[TARGET].scalar())), exc.__cause__.install)

    def writing(self) -> dict[str, object]:
        options: dict[str, object] = {}
        for key, item in self._mapping("write", "expected a mapping, e.g. {format: jsonl.zst}").items():
            if key not in _WRITING:
                raise item.fail(f"unknown field {key!r}{suggest(key, list(_WRITING))}")
            value = self.targets.build(item)
            if value is not None:
                options[_WRITING[key]] = value
        return options

    def _name_targets(self, stages: Located) -> None:
        """Replace `- input_file_type: jsonl` (`output_file_type`) by a reader (writer) of that format."""
        for at in stages.items():
            fields = at.fields()
            for key, room in (("input_file_type", "reader"), ("output_file_type", "writer")):
                if key in fields and TARGET not in fields:
                    kind = fields[key].scalar()
                    if kind not in FILE_TYPES:
                        raise fields[key].fail(f"expected {' or '.join(FILE_TYPES)}, got {kind!r}")
                    name = f"tamis.stages.text.io.{room}.{str(kind).capitalize()}{room.capitalize()}"
                    assert isinstance(at.node.value, dict)
                    at.node.value[TARGET] = Node(name, at.node.line)
                    del at.node.value[key]
                    break

    def workflow(self) -> object | None:
        """Build the workflow, or a list of workflows that run one after the other."""
        at = self.top.get("workflow")
        if at is None or not isinstance(at.node.value, list):
            return self.one("workflow", "run")
        if not at.node.value:
            raise at.fail("expected at least one workflow")
        workflows = [self.built(item, ("run",), "a workflow") for item in at.items()]
        return workflows[0] if len(workflows) == 1 else WorkflowSequence(workflows)

    def one(self, key: str, method: str) -> object | None:
        return self.built(self.top[key], (method,), f"a {key}") if key in self.top else None

    def built(self, at: Located, methods: Sequence[str], what: str) -> object:
        if TARGET not in at.fields():
            raise at.fail(f"expected a mapping with {TARGET} and its parameters")
        instance = self.targets.build(at)
        if not any(callable(getattr(instance, method, None)) for method in methods):
            raise at.fail(f"{type(instance).__name__} is not {what}: it has no {' or '.join(methods)} method")
        return instance

    def alerts(self) -> Section | None:
        if "alerts" not in self.top:
            return None
        section: Section = _satellites.load("alerts.read_section")(self.top["alerts"])
        return section

    def settings(self) -> tuple[dict[str, SettingValue], dict[str, str] | None]:
        """Return the settings, checked and as they are written (messages show that), and the schema of the columns."""
        settings: dict[str, SettingValue] = {}
        schema = None
        for key, item in self._mapping("settings", "expected a mapping of settings").items():
            if key in ("allow_modules", "allow_module"):
                raise item.fail("a recipe cannot allow modules itself; use --allow-module on the command line")
            if key == "schema":
                if "stages" not in self.top:
                    raise item.fail("settings.schema is for 'stages:' with a ParquetWriter at their end; remove it")
                schema = _schema(item)
                continue
            if key not in RECIPE_SETTINGS:
                raise item.fail(f"unknown setting {key!r}{suggest(key, [*RECIPE_SETTINGS, 'schema'])}")
            value = item.scalar()
            if value is None:
                continue
            try:
                RECIPE_SETTINGS[key].check(value)
            except UsageError as exc:
                raise item.fail(str(exc)) from None
            settings[key] = value
        return settings, schema

    def _mapping(self, key: str, otherwise: str) -> dict[str, Located]:
        """Return a part of the recipe that is a mapping; empty if the part is missing.

        `otherwise`: the error message for anything else.
        """
        at = self.top.get(key)
        if at is None or at.node.value is None:
            return {}
        if not isinstance(at.node.value, dict):
            raise at.fail(otherwise)
        return at.fields()


def _schema(at: Located) -> dict[str, str]:
    if not at.fields():
        raise at.fail("expected a mapping of column: type, e.g. {id: int64, text: string}")
    types: dict[str, str] = {}
    for column, item in at.fields().items():
        value = item.scalar()
        if not isinstance(value, str):
            raise item.fail(f"expected the name of a type such as string or int64, got {value!r}")
        types[column] = value
    return types


# Fields of `write:`, and the parameters of a Curation that they are.
_WRITING = {
    k: "file_type" if k == "format" else k
    for k in ("format", "shard_size", "split", "shuffle", "card", "tokens", "partition_by")
}
