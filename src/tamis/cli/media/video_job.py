"""Videos as clips: the options of `tamis video`, and the job they make, saved with the run for `tamis resume`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tamis._dataclasses import dataclass
from tamis.cli.jobs.jobs import Consent
from tamis.cli.parsing.arguments import Option
from tamis.errors import UsageError
from tamis.stores.urls import is_remote

if TYPE_CHECKING:
    from tamis.recipe.load import Recipe

_STAGES = "tamis.stages.video"
_CLIPPING = f"{_STAGES}.clipping"
Stage = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class VideoOptions:
    """Options for processing videos."""

    preset: Annotated[
        Literal["split", "split+caption"],
        Option(
            help="split: cut videos into clips and filter them. split+caption: also let a model describe each clip."
        ),
    ] = "split"
    splitting: Annotated[
        Literal["fixed", "transnetv2"],
        Option(
            help="fixed: clips of equal length. transnetv2: clips that begin and end at the cuts of the video, which "
            "a neural network finds."
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
            help="Encoder of the clips: copy (as it is in the video, nothing is encoded), libx264, libvpx-vp9, "
            "libsvtav1, ...",
        ),
    ] = "copy"
    min_motion: Annotated[
        float | None,
        Option(
            help="Drop clips with less motion on average, e.g. 0.00098, or with a part that never moves. Default: "
            "drop none."
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
            help="With split+caption: qwen2.5, qwen3, or the Hugging Face id or folder of a vision-language chat "
            "model. Default: qwen2.5.",
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


@dataclass(frozen=True)
class VideoJob:
    """Videos as clips, filtered and captioned."""

    kind: ClassVar[str] = "video"
    source: str
    target: str
    options: VideoOptions

    def load(self, consent: Consent) -> Recipe:
        from tamis.recipe.load import Recipe

        return Recipe("video", [_build(target, parameters) for target, parameters in self.stages()])

    def describe(self) -> str:
        return "tamis video"

    def stages(self) -> list[Stage]:
        """Return the stages: the name of each class, and its parameters."""
        from tamis.formats.input_files.skipped import ends_in
        from tamis.formats.registry import suffixes

        check_options(self.options)
        is_file = ends_in(self.source, suffixes("video")) if is_remote(self.source) else not os.path.isdir(self.source)
        folder = os.path.dirname(self.source) if is_file else self.source
        videos = {"input_video_path": self.source, "video_limit": self.options.limit_videos}
        writer = {
            "output_path": self.target,
            "input_path": folder,
            "upload_clips": True,
            "dry_run": False,
            "generate_embeddings": False,
            "generate_previews": self.options.previews,
            "generate_captions": self.options.preset == "split+caption",
        }
        return [
            (f"{_STAGES}.io.video_reader.VideoReader", videos),
            *_splitting(self.options),
            (f"{_CLIPPING}.clip_extraction_stages.ClipTranscodingStage", {"encoder": self.options.transcode}),
            *_filters(self.options),
            *_captions(self.options),
            (f"{_STAGES}.io.clip_writer.ClipWriterStage", writer),
        ]


def _build(target: str, parameters: Mapping[str, Any]) -> object:
    """Build a stage; parameters that are None have their default."""
    module, _, name = target.rpartition(".")
    return getattr(import_module(module), name)(**{k: v for k, v in parameters.items() if v is not None})


def check_options(options: VideoOptions) -> None:
    """Reject an option that would have no effect, instead of ignoring it."""
    captions = {
        "--caption-model": options.caption_model,
        "--caption-prompt": options.caption_prompt,
        "--caption-tokens": options.caption_tokens,
    }
    unused = [name for name, value in captions.items() if value is not None]
    if unused and options.preset != "split+caption":
        raise UsageError(f"{unused[0]} means nothing with --preset {options.preset}; captions: --preset split+caption")
    uses_models = options.preset == "split+caption" or options.splitting == "transnetv2"
    if options.model_folder is not None and not uses_models and options.min_aesthetic is None:
        raise UsageError(
            "--model-folder means nothing here: models are used by --preset split+caption, --splitting transnetv2 and "
            "--min-aesthetic"
        )


def _splitting(options: VideoOptions) -> list[Stage]:
    if options.splitting == "fixed":
        lengths = {"clip_len_s": options.clip_seconds, "clip_stride_s": options.clip_seconds}
        limits = {"min_clip_length_s": options.min_clip_seconds, "limit_clips": 0}
        return [(f"{_CLIPPING}.clip_extraction_stages.FixedStrideExtractorStage", {**lengths, **limits})]
    return [
        (f"{_CLIPPING}.video_frame_extraction.VideoFrameExtractionStage", {"decoder_mode": "ffmpeg_cpu"}),
        (
            f"{_CLIPPING}.transnetv2_extraction.TransNetV2ClipExtractionStage",
            {
                "model_dir": options.model_folder,
                "min_length_s": options.min_clip_seconds,
                "max_length_s": options.clip_seconds,
            },
        ),
    ]


def _filters(options: VideoOptions) -> list[Stage]:
    stages: list[Stage] = []
    if options.min_motion is not None:
        motion = f"{_STAGES}.filtering.motion_filter"
        stages += [
            (f"{motion}.MotionVectorDecodeStage", {}),
            (f"{motion}.MotionFilterStage", {"global_mean_threshold": options.min_motion}),
        ]
    if options.min_aesthetic is not None:
        looks = f"{_STAGES}.filtering.clip_aesthetic_filter.ClipAestheticFilterStage"
        stages.append((looks, {"model_dir": options.model_folder, "score_threshold": options.min_aesthetic}))
    return stages


def _captions(options: VideoOptions) -> list[Stage]:
    stages: list[Stage] = []
    if options.preset == "split+caption":
        model = options.caption_model or "qwen2.5"
        caption = f"{_STAGES}.caption"
        prompt = {"prompt_text": options.caption_prompt, "generate_previews": False}
        arguments = {
            "model_dir": options.model_folder,
            "model_variant": model,
            "max_output_tokens": options.caption_tokens or 512,
        }
        stages += [
            (f"{caption}.caption_preparation.CaptionPreparationStage", prompt),
            (f"{caption}.caption_generation.CaptionGenerationStage", arguments),
        ]
    if options.previews:
        stages.append((f"{_STAGES}.preview.preview.PreviewStage", {}))
    return stages
