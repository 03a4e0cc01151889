"""What the user asked for: a recipe, changes to it, and settings. Kept as `_tamis/command.json`, so that a run can be resumed.

Secrets among the values of --set are not kept, only that there were some: they are given again, or the recipe takes them from the
environment (${env:NAME}). What is read back is data, never trusted: it lies in a run directory that is this user's alone (or in a bucket, which belongs
to nobody: resume.py), every value is checked, neither modules nor the code of models are allowed again without the user saying so, and `fresh` is not
kept (resuming must not start over).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tamis
from tamis import files, secrets
from tamis.errors import PipelineError, RunConflict, TamisError, UsageError
from tamis.stores.options import command_line_options, parse_options
from tamis.stores.run_locations import fetch_run_dir, local_output_dir
from tamis.stores.urls import absolute

if TYPE_CHECKING:
    from tamis.cli.jobs.alerting import Wanted
    from tamis.pipeline import Pipeline
    from tamis.recipe.load import Recipe
    from tamis.stages.file_partitioning import FilePartitioningStage

FILE = "command.json"
_VERSION = 1
_MAX_BYTES = 1_000_000
# An address is all that it takes to write there.
_SINK = re.compile(r"alerts\.sinks\..+\.(webhook|command|headers)(\..*)?")
_DEDUP = ("dedup.json", "dedup", "dedup.lock")  # what a deduplication leaves; the lock alone with scratch elsewhere


@dataclass(frozen=True)
class Request:
    recipe: str
    overrides: dict[str, str] = field(default_factory=dict)
    allow: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    alerts: str | None = None  # the user's file of rules; like modules, never kept: it names commands
    allow_alert_sinks: bool = False
    text: str | None = None  # of a recipe that is no file; `recipe` is what it will be called
    trust_remote_code: bool = False  # whether the recipe may run code that models bring along; never kept, like modules
    modules_in: str | None = None  # where allowed modules are looked for; None: in the current folder

    def build(self) -> tuple[Pipeline, dict[str, Any]]:
        """Return the pipeline of the recipe and the settings of its run.

        Settings of the command line override those of the recipe.
        """
        from tamis.pipeline import Pipeline

        path, recipe = self._loaded
        if recipe.workflow is not None:
            raise UsageError(
                f"{path}: its 'workflow:' is for `tamis run` and `tamis plan`; this command takes 'stages:'"
            )
        settings: dict[str, Any] = {**recipe.settings, **self.settings}
        schema = settings.pop("schema", None)
        # For the record of settings: what the recipe chose, and not the user.
        settings["chosen_by"] = {"stages": "recipe", **{k: "recipe" for k in recipe.settings if k not in self.settings}}
        pipeline = Pipeline(recipe.pipeline_args["name"], recipe.pipeline_args.get("description"))
        try:
            for stage in recipe.stages:
                pipeline.add_stage(stage)  # type: ignore[arg-type]
            if schema is not None:
                _set_schema(pipeline, schema)
            pipeline.build()
        except TamisError:
            raise
        except Exception as exc:  # methods of the user's stages run here
            why = secrets.hide(f"{type(exc).__name__}: {exc}")
            raise PipelineError(f"{path}: the pipeline cannot be built: {why}") from exc
        return pipeline, settings

    def workflow(self) -> tuple[Any, dict[str, Any]] | None:
        """Return the workflow of a recipe that has one, and its settings; None for a recipe with stages."""
        _, recipe = self._loaded
        return None if recipe.workflow is None else (recipe.workflow, {**recipe.settings, **self.settings})

    def wanted_alerts(self) -> Wanted:
        from tamis.cli.jobs.alerting import Wanted

        return Wanted(self.alerts, self.allow_alert_sinks, self._loaded[1].alerts)

    @cached_property
    def _loaded(self) -> tuple[str, Recipe]:
        """Read once: a command asks for the workflow, then for the pipeline, and building the stages may take long."""
        from tamis.recipe.load import load_recipe

        folder = self.modules_in or os.getcwd()
        if self.allow and folder not in sys.path:
            sys.path.insert(0, folder)  # a module the user names is looked for here, as `python -m` does
        path = find_recipe(self.recipe) if self.text is None else self.recipe
        secrets.learn_values(self.overrides)
        recipe = load_recipe(
            path, self.allow, overrides=self.overrides, text=self.text, trust_remote_code=self.trust_remote_code
        )
        for sink in recipe.alerts.sinks.values() if recipe.alerts is not None else ():
            secrets.learn(sink.addresses())  # whoever knows the address of a chat can write there
        if recipe.backend != "local":
            recipe.settings.setdefault("executor", recipe.backend)
        if recipe.ray_client is not None:
            recipe.settings["ray_client"] = recipe.ray_client
        return path, recipe

    def save(self, run_dir: str) -> None:
        """Write it whole or not at all, without secrets."""
        hidden = secret_names(self.overrides)
        data = {
            "version": _VERSION,
            "recipe": os.path.abspath(find_recipe(self.recipe)),
            "cwd": os.getcwd(),
            "set": {k: v for k, v in self.overrides.items() if k not in hidden},
            "secrets": sorted(hidden),
            "modules": list(self.allow),
            "settings": {k: v for k, v in self.settings.items() if k in _kept()},
            "storage": command_line_options(),
        }
        files.write_json(os.path.join(run_dir, FILE), data, indent=1)

    def with_options(
        self, settings: dict[str, Any], allow: Sequence[str], overrides: Mapping[str, str] | None = None
    ) -> Request:
        changed = {**self.overrides, **(overrides or {})}
        return replace(self, settings={**self.settings, **settings}, allow=tuple(allow), overrides=changed)


def secret_names(overrides: Mapping[str, str]) -> set[str]:
    """Return the names of the --set overrides that are secrets.

    An override is a secret by its name, or because a stage (or a sink) has such a value under the name of a
    secret.
    """
    known = secrets.known()
    return {
        name
        for name, value in overrides.items()
        if secrets.kind_of(name.rpartition(".")[2]) or _SINK.fullmatch(name) or any(s in value for s in known)
    }


@dataclass(frozen=True)
class Saved:
    """A request as the run directory keeps it. `modules`: those it used, which the user must allow again; `secrets`: the
    names of --set whose values were not kept; `storage`: its --storage-option."""

    request: Request
    cwd: str
    modules: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    storage: tuple[str, ...] = ()


def load_saved(output: str) -> Saved:
    """Return the command that produced `output`.

    Raise RunConflict, before anything is read, if the run directory does not belong to this user alone.
    """
    from tamis.engine.run.output.directory import check_run_dir

    output = fetch_run_dir(output)
    path = os.path.join(output, "_tamis", FILE)
    check_run_dir(os.path.dirname(path))
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        data = json.loads(raw) if len(raw) <= _MAX_BYTES else None
    except FileNotFoundError:
        if any(os.path.exists(os.path.join(output, "_tamis", name)) for name in _DEDUP):
            raise UsageError(
                f"{output} is the output of a deduplication, a curation from Python or joining; run the same command again (tamis dedup ..., or "
                "its recipe or script): it goes on where it stopped"
            ) from None
        if os.path.exists(os.path.join(output, "_tamis", "plan.json")):
            raise UsageError(
                f"{output} was not made by `tamis run`; run the same Python script again, it resumes by itself"
            ) from None
        raise UsageError(f"{output} holds no run of Tamis; give the output folder of a run, or a recipe") from None
    except (OSError, ValueError) as exc:
        raise RunConflict(f"{path} cannot be read ({exc}); run the recipe itself again: tamis run RECIPE") from None
    return _checked(data, path)


def _checked(data: Any, path: str) -> Saved:
    def bad(what: str) -> RunConflict:
        return RunConflict(f"{path} is damaged ({what}); run the recipe itself again: tamis run RECIPE")

    if not isinstance(data, dict) or data.get("version") != _VERSION:
        raise bad(f"expected version {_VERSION}")
    for name in ("recipe", "cwd"):
        if not isinstance(data.get(name), str) or not os.path.isabs(data[name]):
            raise bad(f"{name}: expected an absolute path")
    changes, modules, settings = data.get("set"), data.get("modules"), data.get("settings")
    if not isinstance(changes, dict) or not all(isinstance(v, str) for v in changes.values()):
        raise bad("set: expected texts by name")
    if not isinstance(modules, list) or not all(isinstance(m, str) for m in modules):
        raise bad("modules: expected a list of names")
    names = data.get("secrets", [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise bad("secrets: expected a list of names")
    storage = data.get("storage", [])
    if not isinstance(storage, list) or not all(isinstance(pair, str) for pair in storage):
        raise bad("storage: expected a list of KEY=VALUE")
    try:
        parse_options(storage)
    except UsageError as exc:
        raise bad(f"storage: {exc}") from None
    if not isinstance(settings, dict):
        raise bad("settings: expected values by name")
    for name, value in settings.items():
        try:
            _kept()[name](value, name)
        except (KeyError, UsageError):
            raise bad(f"settings.{name}: unknown, or not a value it can have") from None
    request = Request(data["recipe"], changes, (), settings)
    return Saved(request, data["cwd"], tuple(modules), tuple(names), tuple(storage))


def _kept() -> dict[str, Callable[[Any, str], object]]:
    """Settings that a resumed run takes over, each with its check: those of recipes, and some of the command line."""
    from tamis.backends.registry import ALIASES, NAMES
    from tamis.engine.run.shard import Shard
    from tamis.recipe.load import SETTINGS, is_bool, is_text, one_of

    def shard(value: Any, what: str) -> None:
        is_text(value, what)
        Shard.parse(value)

    own = {
        "executor": one_of(*NAMES, *ALIASES),
        "address": is_text,
        "run_dir": is_text,
        "shard": shard,
        "merge": is_bool,
    }
    return {**SETTINGS, **own}


def text_in_recipe(text: str) -> str:
    """Return a command-line text that goes into a recipe.

    Raise UsageError if anything in it could be taken for a reference there.
    """
    if "${" in text:
        raise UsageError(f"{text}: a name with ${{ in it cannot be given here; write a recipe, or rename it")
    return text


def path_in_recipe(path: str) -> str:
    """Return a command-line path for a recipe, as an absolute path, checked like `text_in_recipe`."""
    return text_in_recipe(path if "://" in path else os.path.abspath(os.path.expanduser(path)))


def find_recipe(name: str) -> str:
    """Return the path of a recipe: a file, or a recipe that ships with Tamis, by its name."""
    shipped = Path(tamis.__file__).parent / "recipe" / "presets"
    if os.sep in name or (os.path.exists(name) and not os.path.isdir(name)):  # a folder called `code` hides no preset
        return name
    at = shipped / f"{name.removesuffix('.yaml')}.yaml"
    if at.is_file():
        return str(at)
    known = ", ".join(sorted(p.stem for p in shipped.glob("*.yaml")))
    raise UsageError(f"no such recipe: {name}; give a file, or one of those that ship with Tamis: {known}")


def output_of(pipeline: Pipeline, settings: dict[str, Any]) -> str:
    """Return the location where the run is stored.

    A command must leave its results in a named location.
    """
    from tamis.stages.io import Writer

    last = pipeline.build()[-1]
    if isinstance(last, Writer):
        return last.path
    if settings.get("run_dir") is None:
        raise UsageError(
            "the recipe has no writer: end it with one (e.g. JsonlWriter), or name a folder for the results with --run-dir"
        )
    return absolute(str(settings["run_dir"]))


def run_dir_of(pipeline: Pipeline, settings: dict[str, Any]) -> str:
    """Return the run directory on this machine, of the whole run or of the part that --shard names."""
    output = output_of(pipeline, settings)
    if settings.get("shard") is not None:
        from tamis.engine.run.shard import Shard

        output = Shard.parse(str(settings["shard"])).place_in(output)
    return os.path.join(local_output_dir(output), "_tamis")


def file_source(stages: Sequence[Any], command: str) -> FilePartitioningStage:
    """Return the stage that lists the input files.

    Raise UsageError, which names the command, if the stages begin with anything else.
    """
    from tamis.stages.file_partitioning import FilePartitioningStage

    if not isinstance(stages[0], FilePartitioningStage):
        raise UsageError(
            f"{command} works for recipes that begin with a reader of files, and this one begins with {stages[0].name}"
        )
    return stages[0]


def redirect(pipeline: Pipeline, paths: Sequence[str], output: str) -> Pipeline:
    """Return the same stages reading other files and writing into another folder.

    Requires stages that begin with a `file_source`.
    """
    import copy

    from tamis.formats.registry import suffixes
    from tamis.pipeline import Pipeline
    from tamis.stages.file_partitioning import FilePartitioningStage
    from tamis.stages.io import Writer

    flat = pipeline.build()
    source: Any = flat[0]
    # Copies of lines and rows have the usual names; files that are copied whole keep theirs.
    endings = [*(source.file_extensions or ()), *suffixes()]
    stages: list[Any] = [
        FilePartitioningStage(list(paths), blocksize=source.blocksize, file_extensions=endings), *flat[1:],
    ]  # fmt: skip
    if isinstance(stages[-1], Writer):
        stages[-1] = copy.copy(stages[-1])
        stages[-1].path, stages[-1].mode = absolute(output), "ignore"
    return Pipeline(pipeline.name, pipeline.description, stages)


def reader_formats(pipeline: Pipeline) -> list[str]:
    """Return the formats that the reader of a pipeline reads, regardless of file names; empty without a reader."""
    return next((list(stage.formats) for stage in pipeline.build() if hasattr(stage, "formats")), [])


def _set_schema(pipeline: Pipeline, schema: dict[str, str]) -> None:
    from tamis.stages.text.io.writer import ParquetWriter

    writer = pipeline.stages[-1]
    if not isinstance(writer, ParquetWriter):
        raise UsageError("settings.schema is for a ParquetWriter at the end of the recipe; remove it")
    if writer.schema is None:
        writer.schema = schema
