"""From URLs to files: a downloader fetches one file, whole or not at all; the stage does it for tasks.

A file has its final name only when all of it is there. An interrupted download is stored next to it as `<name>.part`
and resumed. If a server reports that a file does not exist, `<name>.failed` has the URL and the reason; transient
trouble (no connection, a busy server) raises DownloadError after some attempts, because a run that continues without
these files would look finished. Run again, and only missing files are fetched.
"""

from __future__ import annotations

import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis import files
from tamis.errors import DownloadError, TamisError
from tamis.sizes import parse_size
from tamis.stages.base import ProcessingStage
from tamis.stages.text.download.base.room import DownloadRoom, forget, release
from tamis.stages.text.download.fetch import USUAL, FetchPolicy, fetch_file
from tamis.stages.text.download.names import check_name, own_name_of_url
from tamis.stores.opening import state_of
from tamis.stores.urls import is_remote
from tamis.tasks import FileGroupTask

log = logging.getLogger("tamis.download")


class DocumentDownloader(ABC):
    """Fetches files into `download_dir`. Subclasses say how a URL becomes a file name, and how it is fetched."""

    def __init__(self, download_dir: str, verbose: bool = False) -> None:
        self._download_dir = os.fspath(download_dir)
        self._verbose = verbose

    @abstractmethod
    def _get_output_filename(self, url: str) -> str:
        """Return the name of the file for `url`, without a folder."""

    @abstractmethod
    def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
        """Fetch `url` into the file `path`: (True, None), or (False, why it can never work).

        `path` may hold the beginning of the same file, from an earlier call. Raise DownloadError for trouble that may
        pass.
        """

    def download(self, url: str) -> str | None:
        """Return the path of the file, fetched now or earlier; None if it is not available (see `failures`)."""
        path = os.path.join(self._download_dir, check_name(self._get_output_filename(url), type(self).__name__))
        os.makedirs(self._download_dir, exist_ok=True)
        with _locked(path + ".lock"):
            if os.path.exists(path) and os.path.getsize(path):
                self._log_verbose(f"{path} is there already")
                return path
            self._log_verbose(f"fetching {url}")
            with _one_of(self._download_dir, self.num_workers_per_node()):
                came, reason = self._download_to_path(url, path + ".part")
            if came:
                files.finish(path + ".part", path)
                self._log_verbose(f"{path}: {os.path.getsize(path):,} bytes")
                files.remove(path + ".failed")
                return path
            log.error("%s cannot be downloaded: %s", url, reason)
            files.write_json(path + ".failed", {"url": url, "reason": reason})
            return None

    def size_of(self, url: str) -> int | None:
        """Return the bytes of the file, if the server reports them: `download_limit` reserves room for them."""
        if not is_remote(url):
            return None
        try:
            return state_of(url)[0]
        except (TamisError, OSError):  # what is wrong with it, the download says
            return None

    def failures(self) -> list[dict[str, str]]:
        """Return each file that could not be downloaded: {"url", "reason"}, of this and of earlier runs."""
        failures = []
        for name in sorted(os.listdir(self._download_dir)) if os.path.isdir(self._download_dir) else []:
            if name.endswith(".failed"):
                with open(os.path.join(self._download_dir, name), encoding="utf-8") as file:
                    failures.append(json.load(file))
        return failures

    def num_workers_per_node(self) -> int | None:
        """Return how many workers of this machine may download into this folder at once; None means no limit."""
        return None

    def _log_verbose(self, text: str) -> None:
        log.log(logging.INFO if self._verbose else logging.DEBUG, "%s", text)


class HttpDownloader(DocumentDownloader):
    """Downloads over HTTP and resumes interrupted downloads. Subclasses may change `policy`."""

    policy: ClassVar[FetchPolicy] = USUAL

    def _get_output_filename(self, url: str) -> str:
        return own_name_of_url(url)

    def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
        return settled(lambda: fetch_file(url, path, self.policy))


def settled(fetch: Any) -> tuple[bool, str | None]:
    """Run `fetch`: (True, None), or (False, reason) where the server says that there is nothing.

    Other trouble is raised.
    """
    try:
        fetch()
    except DownloadError as exc:
        if exc.permanent:
            return False, exc.reason
        raise
    return True, None


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold a lock so that two processes never write the same part file.

    The second process waits here, and then the file exists.
    """
    handle = files.take_lock(path, wait=True)
    try:
        yield
    finally:
        os.unlink(path)
        os.close(handle)


@contextmanager
def _one_of(folder: str, n_places: int | None) -> Iterator[None]:
    """Admit at most `n_places` processes and threads at a time."""
    if n_places is None:
        yield
        return
    paths = [os.path.join(folder, f".downloading-{i}") for i in range(max(1, n_places))]
    while True:
        for path in paths:
            try:
                handle = files.take_lock(path)
            except BlockingIOError:
                continue
            try:
                yield
            finally:
                os.unlink(path)
                os.close(handle)
            return
        time.sleep(0.1)


@dataclass(repr=False)
class DocumentDownloadStage(ProcessingStage[FileGroupTask, FileGroupTask]):
    """Takes tasks with URLs, gives tasks with paths.

    Files that cannot be had are counted (`failed_downloads`) and named. `download_limit`: the most bytes that files may
    take in the folder at a time, for files that the stage after this one removes; a download waits until there is room.
    """

    downloader: DocumentDownloader
    download_limit: int | str | None = None
    columns_in = ()
    columns_out = ()

    def __post_init__(self) -> None:
        self.name = f"download_{type(self.downloader).__name__.lower()}"
        self._room: DownloadRoom | None = None
        if self.download_limit is not None:
            limit = parse_size(self.download_limit, f"{self.name}: download_limit")
            self._room = DownloadRoom(self.downloader._download_dir, limit)

    def xenna_stage_spec(self) -> dict[str, Any]:
        n_workers = self.downloader.num_workers_per_node()
        return {} if n_workers is None else {"num_workers_per_node": n_workers}

    def process(self, task: FileGroupTask) -> FileGroupTask:
        paths, failed = [], []
        if self._room is not None:
            forget({self._path(url) for url in task.data})
        for url in task.data:
            path = self._download(url)
            if path is None:
                failed.append(url)
            else:
                paths.append(path)
        self._log_metrics({"downloads": len(paths), "failed_downloads": len(failed)})
        metadata = {**task._metadata, "source_files": paths}
        if failed:
            metadata["failed_downloads"] = failed
        return FileGroupTask(task.dataset_name, paths, task._stage_perf, metadata)

    def _download(self, url: str) -> str | None:
        if self._room is None:
            return self.downloader.download(url)
        self._room.reserve(self._path(url), self.downloader.size_of(url))
        path = None
        try:
            path = self.downloader.download(url)
        finally:
            if path is None:
                release(self._path(url))
        return path

    def _path(self, url: str) -> str:
        name = check_name(self.downloader._get_output_filename(url), type(self.downloader).__name__)
        return os.path.join(self.downloader._download_dir, name)
