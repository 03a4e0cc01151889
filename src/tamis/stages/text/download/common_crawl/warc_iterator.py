"""CommonCrawlWarcIterator: web pages of a WARC file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from tamis.errors import DownloadError, FormatError
from tamis.stages.text.download.base.iterator import DocumentIterator
from tamis.stages.text.download.common_crawl.warc import http_body, read_records
from tamis.stages.text.download.streams import Decoded
from tamis.stores.options import check, use
from tamis.stores.urls import is_bucket

log = logging.getLogger("tamis.download")
MAX_PAGE_BYTES = 64 << 20
_OPTIONS = "CommonCrawlWarcIterator: storage_options"


class CommonCrawlWarcIterator(DocumentIterator):
    """Responses of a local WARC file, or of a remote one with `storage_options` as readers of files take them (`s3://...`: extra `s3`).

    Larger ones than 64 MiB, and what lies behind damage in the file, are left out and counted.
    """

    def __init__(self, storage_options: dict[str, Any] | None = None) -> None:
        self._storage_options = dict(storage_options or {})
        check(self._storage_options, _OPTIONS)

    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        name = str(file_path).rpartition("/")[2]
        with self._open(str(file_path)) as stream:
            try:
                for record in read_records(stream, MAX_PAGE_BYTES, frozenset({"response"})):
                    body = self._body(record)
                    if body is not None:
                        yield {"url": record.url, "warc_id": record.record_id, "source_id": name, "content": body}
            except FormatError as exc:
                log.warning("%s: %s; the records before it were read", file_path, exc)
                self._skip("damage in the file (all behind it)")

    def output_columns(self) -> list[str]:
        return ["url", "warc_id", "source_id", "content"]

    def _body(self, record: Any) -> bytes | None:
        if record.block is None:
            self._skip("pages above 64 MiB")
            return None
        try:
            return http_body(record.block, MAX_PAGE_BYTES)[2]
        except FormatError:
            self._skip("records without an HTTP response")
            return None

    def _open(self, path: str) -> Decoded:
        if "://" not in path:
            return Decoded.open(path)
        from tamis.formats.compression.streams import codec_of
        from tamis.stores.opening import open_input

        if not is_bucket(path):
            raise DownloadError(path, "expected a path, or a URL that begins with s3://", True)
        use(path, self._storage_options, _OPTIONS)
        return Decoded(open_input(path), codec_of(path))
