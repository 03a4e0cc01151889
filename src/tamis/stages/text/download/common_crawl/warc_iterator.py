"""CommonCrawlWarcIterator: web pages of a WARC file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from tamis.errors import DownloadError, FormatError
from tamis.formats.compression.codecs import codec_of
from tamis.formats.warc.http import http_body
from tamis.formats.warc.records import WarcFault, WarcRecord, WarcScanner
from tamis.stages.notes import InputFault
from tamis.stages.text.download.base.iterator import DocumentIterator
from tamis.stores.opening import open_input
from tamis.stores.options import check, remember
from tamis.stores.urls import is_bucket

MAX_PAGE_BYTES = 64 << 20
_OPTIONS = "CommonCrawlWarcIterator: storage_options"
_KINDS = ("warcinfo", "request", "metadata", "revisit", "conversion", "resource", "continuation")


class CommonCrawlWarcIterator(DocumentIterator):
    """Iterates over the responses of a WARC file.

    Remote files take `storage_options` like readers of files (`s3://...`: extra `s3`).

    Larger ones than 64 MiB and records of other types are left out and counted. Damaged parts of a file go to
    quarantine, and reading continues after them; pages from there on have the field `resynchronised`.
    """

    def __init__(self, storage_options: dict[str, Any] | None = None) -> None:
        self._storage_options = dict(storage_options or {})
        check(self._storage_options, _OPTIONS)

    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        path = str(file_path)
        name = path.rpartition("/")[2]
        with self._open(path) as raw:
            scanner = WarcScanner(raw, codec_of(path), MAX_PAGE_BYTES, frozenset({"response"}))
            for record in scanner:
                if isinstance(record, WarcFault):
                    lost = record.lost_bytes(scanner.file_bytes)
                    self._fault(InputFault(path, record.offset, record.length, record.reason, lost_bytes=lost))
                    continue
                body = self._body(record)
                if body is None:
                    continue
                self.record_offset = record.offset
                page = {"url": record.url, "warc_id": record.record_id, "source_id": name, "content": body}
                yield {**page, "resynchronised": True} if record.resynchronised else page

    def output_columns(self) -> list[str]:
        return ["url", "warc_id", "source_id", "content"]

    def _body(self, record: WarcRecord) -> bytes | None:
        if record.kind != "response":
            self._skip(f"{record.kind} records" if record.kind in _KINDS else "records of an unknown type")
            return None
        if record.block is None:
            self._skip("pages above 64 MiB")
            return None
        try:
            return http_body(record.block, MAX_PAGE_BYTES)[2]
        except FormatError:
            self._skip("records without an HTTP response")
            return None

    def _open(self, path: str) -> BinaryIO:
        if "://" in path:
            if not is_bucket(path):
                raise DownloadError(path, "expected a path, or a URL that begins with s3://", True)
            remember(path, self._storage_options, _OPTIONS)
        return open_input(path)
