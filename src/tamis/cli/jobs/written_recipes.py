"""Commands that write a recipe for themselves and run that: resuming, reports and settings are then those of `tamis run`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tamis import files
from tamis.cli.jobs.request import Request, path_in_recipe, text_in_recipe
from tamis.cli.parsing.options import DocumentOptions


@dataclass(frozen=True)
class TextRequest(Request):
    """A request whose recipe is kept in the run directory, for `tamis resume`."""

    def save(self, run_dir: str) -> None:
        assert self.text is not None
        path = os.path.join(run_dir, self.recipe)
        files.write_bytes(path, self.text.encode("utf-8"), files.OWN)
        Request(path, settings=self.settings).save(run_dir)


def perform_text(recipe: str, name: str, work: DocumentOptions, trust_remote_code: bool = False) -> int:
    """Run a recipe that is a text; `name` is what it is called in the run directory. Returns the exit code."""
    from tamis.cli.jobs.run import perform

    request = TextRequest(
        name, settings=work.settings(), alerts=work.alerts, text=recipe, trust_remote_code=trust_remote_code
    )
    return perform(request, work.as_json, work.quiet)


def around(name: str, source: str, target: str, stages: Sequence[str], values: Sequence[str] = ()) -> str:
    """Return the recipe that reads `source`, runs the stages (YAML lines) and writes `target` in the source's format.

    `values`: user-supplied texts that occur in the stages.
    """
    from tamis.stages.text.io.formats import output_format
    from tamis.stores.urls import path_text

    source, target = map(path_in_recipe, (source, target))
    for value in values:
        text_in_recipe(value)
    writer, extension = output_format(source, output=target)
    lines = [
        f"name: {json.dumps(name)}",
        "stages:",
        "  - _target_: tamis.stages.text.io.reader.DocumentReader",
        f"    file_paths: {json.dumps(path_text(source))}",
        *stages,
        f"  - _target_: tamis.stages.text.io.writer.{writer.__name__}",
        f"    path: {json.dumps(path_text(target))}",
        f"    file_extension: {extension}",
    ]
    return "\n".join(lines) + "\n"
