"""Requests: what one call of a command is to run, with which settings, and what the user allows it to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tamis import secrets
from tamis._dataclasses import dataclass
from tamis.cli.jobs.jobs import CommandJob, Consent
from tamis.cli.parsing.options import LaunchOptions
from tamis.engine.run.settings import DEFAULT_FILE_SIZE, SettingValue
from tamis.errors import TamisError, UsageError
from tamis.stores.run_locations import run_dir_of
from tamis.stores.urls import absolute

if TYPE_CHECKING:
    from tamis.pipeline import Pipeline
    from tamis.recipe.load import Recipe
    from tamis.stages.file_partitioning import FilePartitioningStage


@dataclass(frozen=True)
class Request:
    """One call of a command: the job, and what the user says about running it."""

    job: CommandJob
    settings: Mapping[str, SettingValue] = field(default_factory=dict)  # of the user; they override those of a recipe
    launch: LaunchOptions = field(default_factory=LaunchOptions)
    consent: Consent = field(default_factory=Consent)

    @cached_property
    def recipe(self) -> Recipe:
        """The loaded job. Loaded once: building the stages may take long."""
        try:
            return self.job.load(self.consent)
        except (TamisError, MemoryError):
            raise
        except (ValueError, TypeError) as exc:  # what the constructor of a stage refuses
            raise UsageError(f"{self.job.describe()}: {secrets.hide(str(exc))}") from exc

    def build(self) -> tuple[Pipeline, dict[str, Any]]:
        """Return the pipeline and the settings of its run; raise UsageError if the job is a workflow."""
        # For the record of settings: what the recipe chose, and not the user.
        by_recipe = {name: "recipe" for name in ("stages", *self.recipe.settings) if name not in self.settings}
        chosen_by = {"file_size": "default", **by_recipe, **dict.fromkeys(self.settings, "user")}
        return self.recipe.pipeline(), {**self._settings, "chosen_by": chosen_by}

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings of the user and the recipe, and those that commands choose otherwise than Python does."""
        return {"file_size": DEFAULT_FILE_SIZE, **self.recipe.settings, **self.settings}

    def workflow(self) -> tuple[Any, dict[str, Any]] | None:
        """Return the workflow and its settings; None if the job is a pipeline."""
        if self.recipe.workflow is None:
            return None
        return self.recipe.workflow, self._settings


def output_of(pipeline: Pipeline, settings: Mapping[str, Any]) -> str:
    """Return the output of a pipeline; raise UsageError if it has no writer and no run directory is named."""
    from tamis.stages.io import Writer

    last = pipeline.build()[-1]
    if isinstance(last, Writer):
        return last.path
    if settings.get("run_dir") is None:
        raise UsageError(
            "the recipe has no writer: end it with one (e.g. JsonlWriter), or name a folder for the results with "
            "--run-dir"
        )
    return absolute(str(settings["run_dir"]))


def run_dir_of_pipeline(pipeline: Pipeline, settings: Mapping[str, Any]) -> str:
    """Return the run directory on this machine, of the whole run or of the part that --shard names."""
    output = output_of(pipeline, settings)
    if settings.get("shard") is not None:
        from tamis.engine.run.shard import Shard

        output = Shard.parse(str(settings["shard"])).output_in(output)
    return run_dir_of(output)


def file_source(stages: Sequence[Any], command: str) -> FilePartitioningStage:
    """Return the stage that lists the input files.

    Raise UsageError, which names the command, if the first stage does not.
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
    reader = FilePartitioningStage(list(paths), blocksize=source.blocksize, file_extensions=endings)
    reader.one_per_file = source.one_per_file
    stages: list[Any] = [reader, *flat[1:]]
    if isinstance(stages[-1], Writer):
        stages[-1] = copy.copy(stages[-1])
        stages[-1].path, stages[-1].mode = absolute(output), "ignore"
    return Pipeline(pipeline.name, pipeline.description, stages)


def reader_formats(pipeline: Pipeline) -> list[str]:
    """Return the formats that the reader of a pipeline reads, regardless of file names; empty without a reader."""
    return next((list(stage.formats) for stage in pipeline.build() if hasattr(stage, "formats")), [])
