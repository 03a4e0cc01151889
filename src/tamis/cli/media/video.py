"""`tamis video IN OUT`: videos into clips, filtered and captioned, without writing a recipe."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

from tamis.cli.media.video_job import VideoJob, VideoOptions, check_options
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit
from tamis.stores.urls import absolute


def video(
    source: Annotated[
        str,
        Argument(
            metavar="IN", help="A video, a folder or a glob of videos (.mp4 .mov .avi .mkv .webm), also in s3://."
        ),
    ],
    target: Annotated[str, Argument(metavar="OUT", help="The folder (or s3://) for the clips and the table of them.")],
    *,
    processing: VideoOptions,
    work: options.StagesOptions,
) -> None:
    """Split videos into clips: one file per clip, and a Parquet table that lists them.

    Videos are decoded frame by frame, so a video of any length and size fits the budget. Files that are not videos, or
    end too early, are quarantined. If it is interrupted, run the same command again: it continues where it stopped.

    Example: tamis video videos/ clips/ --clip-seconds 10 --memory 1GB
    """
    from tamis.cli.jobs.jobs import location
    from tamis.cli.jobs.request import Request
    from tamis.cli.jobs.run import perform

    check_options(processing)
    folder = processing.model_folder
    if folder is not None:
        processing = replace(processing, model_folder=absolute(folder))
    if processing.caption_model is not None and os.path.isdir(processing.caption_model):
        processing = replace(processing, caption_model=os.path.abspath(processing.caption_model))
    job = VideoJob(location(source), location(target), processing)
    # Dropped clips are kept as rows (a few hundred bytes each), so that the report can show them.
    raise CommandExit(perform(Request(job, {**work.settings, "keep_rejected": True}, work.launch)))
