"""`tamis video IN OUT`: films into clips, filtered and captioned, without writing a recipe.

As with `tamis filter`, the command writes a recipe for itself and runs that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any

from tamis.cli import options
from tamis.cli.arguments import Argument, Exit, Option
from tamis.errors import UsageError

_RECIPE = "video.yaml"
_STAGES = "tamis.stages.video"
_CLIPPING = f"{_STAGES}.clipping.clip_extraction_stages"


def video(
    source: Annotated[
        str, Argument(metavar="IN", help="A film, a folder or a glob of films (.mp4 .mov .avi .mkv .webm).")
    ],
    target: Annotated[str, Argument(metavar="OUT", help="The folder for the clips and the table of them.")],
    clip_seconds: Annotated[float, Option(help="The length of a clip.")] = 10.0,
    min_clip_seconds: Annotated[float, Option(help="Shorter clips are left out.")] = 2.0,
    transcode: Annotated[
        str, Option(metavar="ENCODER", help="copy (as it is in the film), libx264, libvpx-vp9, libsvtav1, ...")
    ] = "copy",
    limit_films: Annotated[int | None, Option(min=1, help="Only the first so many films.")] = None,
    *,
    work: options.DocumentOptions,
) -> None:
    """Split films into clips: each clip a file, and a Parquet table of all of them.

    Films are decoded picture by picture, so a film of any length and size fits the budget. What is no film, or is cut short, goes to
    quarantine. The same command again goes on where it stopped.

    Example: tamis video films/ clips/ --clip-seconds 10 --memory 1GB
    """
    from tamis.cli.recipes import perform_text

    recipe = make_recipe(source, target, clip_seconds, min_clip_seconds, transcode, limit_films)
    raise Exit(perform_text(recipe, _RECIPE, work))


def make_recipe(
    source: str, target: str, clip_seconds: float, min_clip_seconds: float, transcode: str, limit_films: int | None
) -> str:
    """The recipe of the command. Values are written as JSON, which YAML reads as it is."""
    from tamis.formats.names import path_text

    source, target = (os.path.abspath(os.path.expanduser(path)) for path in (source, target))
    for value in (source, target, transcode):
        if "${" in value:
            raise UsageError(f"{value}: a name with ${{ in it cannot be given here; write a recipe, or rename it")
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    stages: list[tuple[str, Mapping[str, Any]]] = [
        (f"{_STAGES}.io.video_reader.VideoReader", {"input_video_path": path_text(source), "video_limit": limit_films}),
        (
            f"{_CLIPPING}.FixedStrideExtractorStage",
            {"clip_len_s": clip_seconds, "clip_stride_s": clip_seconds, "min_clip_length_s": min_clip_seconds, "limit_clips": 0},
        ),
        (f"{_CLIPPING}.ClipTranscodingStage", {"encoder": transcode}),
        (
            f"{_STAGES}.io.clip_writer.ClipWriterStage",
            {
                "output_path": path_text(target), "input_path": path_text(folder), "upload_clips": True, "dry_run": False,
                "generate_embeddings": False, "generate_previews": False, "generate_captions": False,
            },
        ),
    ]  # fmt: skip
    lines = ["name: video", "stages:"]
    for stage, given in stages:
        lines += [f"  - _target_: {stage}", *(f"    {k}: {json.dumps(v)}" for k, v in given.items() if v is not None)]
    return "\n".join(lines) + "\n"
