"""`tamis images IN OUT`: images curated in one command: damaged, small, ugly, unsafe and repeated ones go.

The steps are those of a preset, images-NAME; the run is that of `tamis curate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from tamis.cli.jobs.jobs import RecipeJob
from tamis.cli.jobs.request import Request
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option
from tamis.engine.run.settings import SettingValue
from tamis.errors import UsageError
from tamis.stores.urls import absolute

PRESETS = ("clean", "embed", "quality", "full")


def images(
    source: Annotated[
        str,
        Argument(
            metavar="IN", help="A folder, a glob or a file, also in s3://: tars (WebDataset), .jpg .jpeg .png .webp."
        ),
    ],
    target: Annotated[str, Argument(metavar="OUT", help="The folder (or s3://) for tars of the images that stay.")],
    preset: Annotated[
        str,
        Option(
            metavar="NAME",
            help="clean: drop small images and exact copies. embed: add CLIP embeddings. quality: clean, and drop by "
            "aesthetic and NSFW scores. full: quality, and drop images that look alike.",
        ),
    ] = "clean",
    model_dir: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="Folder with CLIP and the models for the scores. Default: the Hugging Face cache, or download.",
        ),
    ] = None,
    min_side: Annotated[
        int | None, Option(min=1, help="Drop images whose shorter side has fewer pixels. Default: 64.")
    ] = None,
    max_aspect_ratio: Annotated[
        float | None,
        Option(help="Drop images whose longer side is more than so many times the shorter one. Default: 4."),
    ] = None,
    aesthetic: Annotated[
        float | None, Option(help="Drop images with a lower aesthetic score (about 1 to 10). Default: 4.5.")
    ] = None,
    nsfw: Annotated[
        float | None, Option(help="Drop images whose NSFW probability is at least this. Default: 0.5.")
    ] = None,
    eps: Annotated[
        float | None,
        Option(
            help="How different two images may be and still count as alike: 0.01 means a cosine similarity of at "
            "least 0.99. Default: 0.01."
        ),
    ] = None,
    images_per_tar: Annotated[
        int | None, Option(min=1, help="Write at most so many images into one tar. Default: 1000.")
    ] = None,
    plan: Annotated[bool, Option("--plan", help="Show the passes over the data and what each does, and stop.")] = False,
    set_: options.Sets = None,
    *,
    work: options.StagesOptions,
) -> None:
    """Curate images: read tars and folders, write tars with a Parquet table beside each.

    The images themselves are not changed.

    Damaged images are quarantined with the reason. tamis why OUT IMAGE tells why one was dropped; the report shows
    examples of images that were kept and, for each rule, of images that were dropped. If it is interrupted, run the
    same command again: it continues where it stopped.

    Example: tamis images images/ clean/ --preset clean --memory 1GB
    """
    from tamis.cli.jobs.curate import perform

    if preset not in PRESETS:
        raise UsageError(
            f"--preset: expected one of {', '.join(PRESETS)}, got {preset!r}; tamis curate runs any recipe with steps"
        )
    choices: dict[str, SettingValue] = {
        "model_dir": None if model_dir is None else absolute(model_dir),
        "min_side": min_side,
        "max_aspect_ratio": max_aspect_ratio,
        "aesthetic": aesthetic,
        "nsfw": nsfw,
        "eps": eps,
        "images_per_tar": images_per_tar,
    }
    choices = {name: value for name, value in choices.items() if value is not None}
    _check_options(preset, choices)
    values = {**choices, "input": absolute(source), "output": absolute(target)}
    request = Request(RecipeJob(f"images-{preset}", options.parse_sets(set_), values), work.settings, work.launch)
    if plan:
        from tamis.cli.plan.curation import show_passes

        workflow_and_settings = request.workflow()
        assert workflow_and_settings is not None
        show_passes(workflow_and_settings[0], work.launch.as_json)
        return
    raise CommandExit(perform(request))


def _check_options(preset: str, choices: Mapping[str, object]) -> None:
    """Reject an option that the preset does not use, instead of ignoring it."""
    from tamis.recipe.step_names import PRESETS as FOLDER
    from tamis.yaml_text import fields_of

    settings = fields_of(str(FOLDER / f"images-{preset}.yaml"))
    unknown = [name for name in choices if name not in settings]
    if unknown:
        raise UsageError(f"--{unknown[0].replace('_', '-')} means nothing with --preset {preset}")
