"""Tasks: the data that stages receive and return, among them batches of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis._lazy import lazy_attributes
from tamis.tasks.document import DocumentBatch
from tamis.tasks.file_group import FileGroupTask
from tamis.tasks.lineage import MISSING, NULL, OTHER, ROW_ID, SCORES, TEXT, Lineage, Origin
from tamis.tasks.sentinels import EmptyTask, FailedTask, NoneTask, SentinelTask
from tamis.tasks.tasks import Task

if TYPE_CHECKING:
    from tamis.tasks.image import ImageBatch, ImageObject
    from tamis.tasks.video import Clip, ClipStats, Video, VideoMetadata, VideoTask

__all__ = [
    "MISSING",
    "NULL",
    "OTHER",
    "ROW_ID",
    "SCORES",
    "TEXT",
    "Clip",
    "ClipStats",
    "DocumentBatch",
    "EmptyTask",
    "FailedTask",
    "FileGroupTask",
    "ImageBatch",
    "ImageObject",
    "Lineage",
    "NoneTask",
    "Origin",
    "SentinelTask",
    "Task",
    "Video",
    "VideoMetadata",
    "VideoTask",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "tamis.tasks.image": ("ImageBatch", "ImageObject"),
        "tamis.tasks.video": ("Clip", "ClipStats", "Video", "VideoMetadata", "VideoTask"),
    },
)
