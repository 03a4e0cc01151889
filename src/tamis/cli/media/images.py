"""`tamis images IN OUT`: pictures curated in one command: damaged, small, ugly, unsafe and repeated ones go.

The steps are those of a preset, images-NAME; the run is that of `tamis curate`.
"""

from __future__ import annotations

from typing import Annotated

from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Exit, Option
from tamis.errors import UsageError

PRESETS = ("clean", "embed", "quality", "full")


def images(
    source: Annotated[
        str,
        Argument(
            metavar="IN", help="A folder, a glob or a file, also in s3://: tars (WebDataset), .jpg .jpeg .png .webp."
        ),
    ],
    target: Annotated[str, Argument(metavar="OUT", help="The folder (or s3://) for tars of the pictures that stay.")],
    preset: Annotated[
        str,
        Option(
            metavar="NAME",
            help="clean (size, same pixels), embed (CLIP embeddings), quality (clean, aesthetic and NSFW scores), full (and those that look alike).",
        ),
    ] = "clean",
    model_dir: Annotated[
        str | None,
        Option(
            metavar="FOLDER", help="Where CLIP and the heads of the scores lie. Default: the hub's cache, or the hub."
        ),
    ] = None,
    min_side: Annotated[int | None, Option(min=1, help="Pixels that the shorter side must have; default: 64.")] = None,
    max_aspect_ratio: Annotated[
        float | None, Option(help="How many times the shorter side the longer one may be; default: 4.")
    ] = None,
    aesthetic: Annotated[
        float | None, Option(help="The least aesthetic score, of about 1 to 10; default: 4.5.")
    ] = None,
    nsfw: Annotated[float | None, Option(help="The NSFW probability that must not be reached; default: 0.5.")] = None,
    eps: Annotated[
        float | None, Option(help="How unlike pictures may be that look alike: 0.01 is a cosine of at least 0.99.")
    ] = None,
    images_per_tar: Annotated[int | None, Option(min=1, help="Pictures in a tar at most; default: 1000.")] = None,
    plan: Annotated[bool, Option("--plan", help="Show the passes and what each does, and stop.")] = False,
    set_: options.Sets = None,
    *,
    work: options.DocumentOptions,
) -> None:
    """Curate pictures: tars and folders in, tars with a Parquet table beside each out. Bytes of pictures stay as they are.

    Damaged pictures go to quarantine with the reason. tamis why OUT PICTURE tells why one went; the report shows some of those that stayed
    and some of those that went, rule by rule. The same command again goes on where it stopped.

    Example: tamis images pictures/ clean/ --preset clean --memory 1GB
    """
    from tamis.cli.jobs.curate import perform
    from tamis.cli.jobs.request import Request, path_in_recipe

    if preset not in PRESETS:
        raise UsageError(
            f"--preset: expected one of {', '.join(PRESETS)}, got {preset!r}; tamis curate runs any recipe with steps"
        )
    given = options.given(
        model_dir=None if model_dir is None else path_in_recipe(model_dir), min_side=min_side, max_aspect_ratio=max_aspect_ratio,
        aesthetic=aesthetic, nsfw=nsfw, eps=eps, images_per_tar=images_per_tar,
    )  # fmt: skip
    _check_options(preset, given)
    changes = {**options.parse_sets(set_), **{k: str(v) for k, v in given.items()}}
    changes |= {"input": path_in_recipe(source), "output": path_in_recipe(target)}
    request = Request(f"images-{preset}", changes, (), work.settings(), work.alerts)
    if plan:
        from tamis.cli.plan.curation import show_passes

        found = request.workflow()
        assert found is not None
        show_passes(found[0], work.as_json)
        return
    raise Exit(perform(request, work.as_json, work.quiet))


def _check_options(preset: str, given: dict[str, object]) -> None:
    """An option that the preset has no use for is refused, never ignored."""
    from tamis.recipe.step_names import PRESETS as FOLDER
    from tamis.recipe.yaml_text import fields_of

    known = fields_of(str(FOLDER / f"images-{preset}.yaml"))
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UsageError(f"--{unknown[0].replace('_', '-')} means nothing with --preset {preset}")
