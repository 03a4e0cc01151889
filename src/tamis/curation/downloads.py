"""Sources that are downloaded: dumps of Wikipedia, papers of arXiv, pages of Common Crawl.

Their documents are written once, as a run of its own, to `documents` in the folder of the download, and read from
there by all passes, of this curation or of others: positions in those files identify them. That run is resumed as any
run is, file by file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tamis import _satellites
from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.stages.base import CompositeStage
from tamis.tasks import EmptyTask

KINDS = tuple(_satellites.names("download"))
"""Sources that have a stage, whose parameters they take."""
_OF_RUNS = ("memory", "workers", "scratch", "timeout", "max_record", "quarantine_limit")


@dataclass(frozen=True)
class Download:
    """A source that is downloaded. `kind`: how it is called in messages."""

    kind: str
    stage: Any  # a DocumentDownloadExtractStage

    @property
    def folder(self) -> str:
        """The folder of its documents."""
        return os.path.abspath(os.path.join(self.stage.downloader._download_dir, "documents"))

    @property
    def is_begun(self) -> bool:
        return os.path.isdir(self.folder)

    def fetch(self, name: str, executor: Any, settings: Mapping[str, Any], progress: bool) -> None:
        """Download what is missing, and write its documents."""
        from tamis.pipeline import Pipeline
        from tamis.stages.text.io.writer import JsonlWriter

        pipeline = Pipeline(f"{name}: {self.kind}", stages=[self.stage, JsonlWriter(self.folder)])
        of_run = {key: value for key, value in settings.items() if key in _OF_RUNS and value is not None}
        pipeline.run(executor, [EmptyTask()], progress=progress, **of_run)


def take_downloads(
    input_path: Any, sources: Sequence[Any] | None
) -> tuple[Any, Sequence[Any] | None, tuple[Download, ...]]:
    """Return input and sources with folders in place of what is downloaded, and the downloads."""
    downloads: list[Download] = []
    if (download := _download_of(input_path)) is not None:
        downloads.append(download)
        input_path = download.folder
    if sources is None or isinstance(sources, str):
        return input_path, sources, tuple(downloads)
    entries: list[Any] = []
    for entry in sources:
        named = [key for key in entry if key in KINDS or key == "download"] if isinstance(entry, Mapping) else []
        if named:
            if len(named) > 1 or "path" in entry:
                raise UsageError(f"sources: a source is one of path, {', '.join(KINDS)}, download; got {sorted(entry)}")
            (key,) = named
            download = _download_of(entry["download"] if key == "download" else {key: entry[key]})
            if download is None:
                raise UsageError(f"sources: download: expected a stage that downloads, got {entry['download']!r}")
            downloads.append(download)
            entry = {**{k: v for k, v in entry.items() if k != key}, "path": download.folder}
        entries.append(entry)
    return input_path, entries, tuple(downloads)


def _download_of(value: Any) -> Download | None:
    """Return the download that a stage, or a mapping such as {"wikipedia": {"language": "de"}}, describes."""
    if isinstance(value, CompositeStage) and hasattr(value, "downloader"):
        return Download(value.name, value)
    if not isinstance(value, Mapping):
        return None
    kind = next(iter(value), None)
    if len(value) != 1 or kind not in KINDS:
        raise UsageError(
            f"input: expected a path, or one of {', '.join(KINDS)} with its parameters, e.g. "
            f"{{wikipedia: {{language: de, download_dir: dump/}}}}; got {sorted(map(str, value))}"
        )
    parameters = value[kind] or {}
    if not isinstance(parameters, Mapping):
        raise UsageError(f"{kind}: expected its parameters, e.g. {{download_dir: dump/}}, got {parameters!r}")
    make = _satellites.load(f"download.{kind}")
    try:
        return Download(kind, make(**parameters))
    except TypeError as exc:  # as Python says it: an unexpected keyword argument
        raise UsageError(f"{kind}: {str(exc).partition('() ')[2] or exc}") from None
