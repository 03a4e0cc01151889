"""`tamis video IN OUT`: videos into clips, filtered and captioned, without writing a recipe.

As with `tamis filter`, the command writes a recipe for itself and runs that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Exit, Option, OptionGroup
from tamis.errors import UsageError
from tamis.stores.urls import is_remote

_RECIPE = "video.yaml"
_STAGES = "tamis.stages.video"
_CLIPPING = f"{_STAGES}.clipping"
Stage = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Wanted(OptionGroup):
    """What is done with videos."""

    preset: Annotated[
        Literal["split", "split+caption"],
        Option(
            help="split: cut videos into clips and filter them. split+caption: also let a model describe each clip."
        ),
    ] = "split"
    splitting: Annotated[
        Literal["fixed", "transnetv2"],
        Option(
            help="fixed: clips of equal length. transnetv2: clips that begin and end at the cuts of the video, which a neural network finds."
        ),
    ] = "fixed"
    clip_seconds: Annotated[float, Option(help="Length of a clip in seconds; with transnetv2 the greatest length.")] = (
        10.0
    )
    min_clip_seconds: Annotated[float, Option(help="Leave out clips that are shorter, in seconds.")] = 2.0
    transcode: Annotated[
        str,
        Option(
            metavar="ENCODER",
            help="Encoder of the clips: copy (as it is in the video, nothing is encoded), libx264, libvpx-vp9, libsvtav1, ...",
        ),
    ] = "copy"
    min_motion: Annotated[
        float | None,
        Option(
            help="Drop clips with less motion on average, e.g. 0.00098, or with a part that never moves. Default: drop none."
        ),
    ] = None
    min_aesthetic: Annotated[
        float | None,
        Option(help="Drop clips with a frame whose aesthetic score (1 to 10, by CLIP) is lower. Default: drop none."),
    ] = None
    caption_model: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="With split+caption: qwen2.5, qwen3, or the Hugging Face id or folder of a vision-language chat model. Default: qwen2.5.",
        ),
    ] = None
    caption_prompt: Annotated[
        str | None,
        Option(
            metavar="TEXT", help="With split+caption: what to ask the model. Default: to describe what can be seen."
        ),
    ] = None
    caption_tokens: Annotated[
        int | None, Option(min=1, help="With split+caption: the longest caption, in tokens. Default: 512.")
    ] = None
    previews: Annotated[bool, Option("--previews", help="Also write a small animated preview of each clip.")] = False
    limit_videos: Annotated[int | None, Option(min=1, help="Process only the first so many videos.")] = None
    model_folder: Annotated[
        str | None, Option(metavar="FOLDER", help="Folder with the models, if they are not in the Hugging Face cache.")
    ] = None


def video(
    source: Annotated[
        str,
        Argument(
            metavar="IN", help="A video, a folder or a glob of videos (.mp4 .mov .avi .mkv .webm), also in s3://."
        ),
    ],
    target: Annotated[str, Argument(metavar="OUT", help="The folder (or s3://) for the clips and the table of them.")],
    *,
    wanted: Wanted,
    work: options.DocumentOptions,
) -> None:
    """Split videos into clips: one file per clip, and a Parquet table that lists them.

    Videos are decoded frame by frame, so a video of any length and size fits the budget. Files that are not videos, or end too
    early, are quarantined. If it is interrupted, run the same command again: it continues where it stopped.

    Example: tamis video videos/ clips/ --clip-seconds 10 --memory 1GB
    """
    from tamis.cli.jobs.written_recipes import perform_text

    # What is dropped is kept as rows (a few hundred bytes a clip), so that the report can show it.
    raise Exit(perform_text(make_recipe(source, target, wanted), _RECIPE, replace(work, keep_rejected=True)))


def make_recipe(source: str, target: str, wanted: Wanted) -> str:
    """Return the recipe of the command.

    Values are written as JSON, which YAML reads unchanged.
    """
    from tamis.cli.jobs.request import path_in_recipe, text_in_recipe
    from tamis.formats.input_files.skipped import ends_in
    from tamis.formats.registry import suffixes
    from tamis.stores.urls import path_text

    _check_options(wanted)
    source, target = map(path_in_recipe, (source, target))
    models = None if wanted.model_folder is None else path_in_recipe(wanted.model_folder)
    for value in (wanted.transcode, wanted.caption_model or "", wanted.caption_prompt or ""):
        text_in_recipe(value)
    is_file = ends_in(source, suffixes("video")) if is_remote(source) else not os.path.isdir(source)
    folder = os.path.dirname(source) if is_file else source
    videos = {"input_video_path": path_text(source), "video_limit": wanted.limit_videos}
    writer = {
        "output_path": path_text(target), "input_path": path_text(folder), "upload_clips": True, "dry_run": False,
        "generate_embeddings": False, "generate_previews": wanted.previews,
        "generate_captions": wanted.preset == "split+caption",
    }  # fmt: skip
    stages: list[Stage] = [
        (f"{_STAGES}.io.video_reader.VideoReader", videos),
        *_splitting(wanted, models),
        (f"{_CLIPPING}.clip_extraction_stages.ClipTranscodingStage", {"encoder": wanted.transcode}),
        *_filters(wanted, models),
        *_captions(wanted, models),
        (f"{_STAGES}.io.clip_writer.ClipWriterStage", writer),
    ]
    lines = ["name: video", "stages:"]
    for stage, given in stages:
        lines += [f"  - _target_: {stage}", *(f"    {k}: {json.dumps(v)}" for k, v in given.items() if v is not None)]
    return "\n".join(lines) + "\n"


def _check_options(wanted: Wanted) -> None:
    """Reject an option that would have no effect, instead of ignoring it."""
    captions = {
        "--caption-model": wanted.caption_model,
        "--caption-prompt": wanted.caption_prompt,
        "--caption-tokens": wanted.caption_tokens,
    }
    unused = [name for name, value in captions.items() if value is not None]
    if unused and wanted.preset != "split+caption":
        raise UsageError(f"{unused[0]} means nothing with --preset {wanted.preset}; captions: --preset split+caption")
    uses_models = wanted.preset == "split+caption" or wanted.splitting == "transnetv2"
    if wanted.model_folder is not None and not uses_models and wanted.min_aesthetic is None:
        raise UsageError(
            "--model-folder means nothing here: models are used by --preset split+caption, --splitting transnetv2 and --min-aesthetic"
        )


def _splitting(wanted: Wanted, models: str | None) -> list[Stage]:
    if wanted.splitting == "fixed":
        lengths = {"clip_len_s": wanted.clip_seconds, "clip_stride_s": wanted.clip_seconds}
        limits = {"min_clip_length_s": wanted.min_clip_seconds, "limit_clips": 0}
        return [(f"{_CLIPPING}.clip_extraction_stages.FixedStrideExtractorStage", {**lengths, **limits})]
    return [
        (f"{_CLIPPING}.video_frame_extraction.VideoFrameExtractionStage", {"decoder_mode": "ffmpeg_cpu"}),
        (
            f"{_CLIPPING}.transnetv2_extraction.TransNetV2ClipExtractionStage",
            {"model_dir": models, "min_length_s": wanted.min_clip_seconds, "max_length_s": wanted.clip_seconds},
        ),
    ]


def _filters(wanted: Wanted, models: str | None) -> list[Stage]:
    stages: list[Stage] = []
    if wanted.min_motion is not None:
        motion = f"{_STAGES}.filtering.motion_filter"
        stages += [
            (f"{motion}.MotionVectorDecodeStage", {}),
            (f"{motion}.MotionFilterStage", {"global_mean_threshold": wanted.min_motion}),
        ]
    if wanted.min_aesthetic is not None:
        looks = f"{_STAGES}.filtering.clip_aesthetic_filter.ClipAestheticFilterStage"
        stages.append((looks, {"model_dir": models, "score_threshold": wanted.min_aesthetic}))
    return stages


def _captions(wanted: Wanted, models: str | None) -> list[Stage]:
    stages: list[Stage] = []
    if wanted.preset == "split+caption":
        asked_for = wanted.caption_model or "qwen2.5"
        model = os.path.abspath(asked_for) if os.path.isdir(asked_for) else asked_for
        caption = f"{_STAGES}.caption"
        asked = {"prompt_text": wanted.caption_prompt, "generate_previews": False}
        given = {"model_dir": models, "model_variant": model, "max_output_tokens": wanted.caption_tokens or 512}
        stages += [
            (f"{caption}.caption_preparation.CaptionPreparationStage", asked),
            (f"{caption}.caption_generation.CaptionGenerationStage", given),
        ]
    if wanted.previews:
        stages.append((f"{_STAGES}.preview.preview.PreviewStage", {}))
    return stages
