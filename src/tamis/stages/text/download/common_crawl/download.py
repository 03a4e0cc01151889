"""WARC files of Common Crawl: whole ones, or single records by their place in a file."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tamis._lazy import np, pa
from tamis.errors import DownloadError, FormatError, MissingExtra, UsageError
from tamis.formats.warc.http import http_body
from tamis.formats.warc.records import WarcFault, WarcScanner
from tamis.sizes import check_integer, check_seconds
from tamis.stages.base import ProcessingStage
from tamis.stages.text.download.base.download import HttpDownloader, settled
from tamis.stages.text.download.fetch import FetchPolicy, fetch_range
from tamis.stages.text.download.names import name_of_url
from tamis.tasks import DocumentBatch

_BUCKET = "commoncrawl"
_RECORD_BYTES = 64 << 20
_PLAIN_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._=+/-]*")


class CommonCrawlWARCDownloader(HttpDownloader):
    """Downloads WARC files over HTTPS, or from the S3 bucket if `use_aws_to_download`.

    S3 needs the extra `s3` and your credentials.
    """

    def __init__(self, download_dir: str, use_aws_to_download: bool = False, verbose: bool = False) -> None:
        super().__init__(download_dir, verbose)
        self.use_aws_to_download = use_aws_to_download
        if use_aws_to_download:
            _need_s3("CommonCrawlWARCDownloader(use_aws_to_download=True)")

    def _get_output_filename(self, url: str) -> str:
        return name_of_url(url)

    def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
        if not self.use_aws_to_download:
            return super()._download_to_path(url, path)
        from tamis.stages.text.download.remote import fetch_object

        return settled(lambda: fetch_object(f"s3://{_BUCKET}/{urlsplit(url).path.lstrip('/')}", path))


@dataclass(repr=False)
class CommonCrawlWARCReader(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fetches the page of each document by file, offset and length, as in Common Crawl's index.

    `timeout` is in seconds.

    What cannot be fetched after `max_retries` more attempts is dropped with its reason, or, with `drop_failed=False`,
    left null. `use_s3`: read from `s3_bucket` (extra `s3`) instead of over HTTPS; None: if a bucket is named.
    """

    warc_filename_col: str = "warc_filename"
    warc_record_offset_col: str = "warc_record_offset"
    warc_record_length_col: str = "warc_record_length"
    binary_content_col: str = "binary_content"
    drop_failed: bool = True
    max_workers: int = 16
    timeout: int = 30
    max_retries: int = 3
    use_s3: bool | None = None
    s3_bucket: str | None = None
    s3_key_prefix: str | None = None

    base_url: ClassVar[str] = "https://data.commoncrawl.org/"

    def __post_init__(self) -> None:
        self.name = "common_crawl_warc_reader"
        check_integer(self.max_workers, f"{self.name}: max_workers")
        check_integer(self.max_retries, f"{self.name}: max_retries", 0)
        check_seconds(self.timeout, f"{self.name}: timeout")
        if self.use_s3 is None:
            self.use_s3 = self.s3_bucket is not None
        if self.use_s3:
            _need_s3("CommonCrawlWARCReader(use_s3=True)")
        elif self.s3_bucket is not None or self.s3_key_prefix is not None:
            raise UsageError(f"{self.name}: s3_bucket and s3_key_prefix are for use_s3=True")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.warc_filename_col, self.warc_record_offset_col, self.warc_record_length_col]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.binary_content_col]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        places = [task.column(name).to_pylist() for name in self.inputs()[1]]
        with ThreadPoolExecutor(self.max_workers) as pool:
            pages: Sequence[bytes | str] = list(pool.map(self._page, *places))
        came = np.array([isinstance(page, bytes) for page in pages], bool)
        contents = pa.array([page if isinstance(page, bytes) else None for page in pages], pa.large_binary())
        result = task.with_column(self.binary_content_col, contents)
        self._log_metrics({"fetched": int(came.sum()), "failed_downloads": int((~came).sum())})
        if came.all() or not self.drop_failed:
            return result
        reasons = [page for page in pages if isinstance(page, str)]
        self._note_drops(task.serial[~came], "page not fetched", reasons, "it can be fetched")
        return result.filter(came)

    def _page(self, filename: Any, offset: Any, length: Any) -> bytes | str:
        """Return the body of one response, or the reason why there is none."""
        try:
            raw = self._range(str(filename), int(offset), int(length))
            codec = "gz" if raw[:2] == b"\x1f\x8b" else None
            for record in WarcScanner(io.BytesIO(raw), codec, _RECORD_BYTES, frozenset({"response"})):
                if isinstance(record, WarcFault):
                    return f"at byte {record.offset:,} of the record: {record.reason}"
                if record.kind != "response":
                    continue
                if record.block is None:
                    return f"the record has {record.n_bytes:,} bytes, more than the {_RECORD_BYTES:,} allowed"
                return http_body(record.block, _RECORD_BYTES)[2]
            return "there is no response record at this place"
        except (DownloadError, FormatError) as exc:
            return str(exc)
        except (TypeError, ValueError):
            return f"no place in a file: {filename!r}, {offset!r}, {length!r}"

    def _range(self, filename: str, offset: int, length: int) -> bytes:
        if not _PLAIN_PATH.fullmatch(filename) or offset < 0 or not 0 < length <= _RECORD_BYTES:
            raise DownloadError(filename, f"no place in a file: offset {offset}, length {length}", permanent=True)
        if not self.use_s3:
            policy = FetchPolicy(timeout_s=self.timeout, n_attempts=self.max_retries + 1)
            return fetch_range(f"{self.base_url.rstrip('/')}/{filename}", offset, length, policy)
        from tamis.stages.text.download.remote import fetch_span

        key = "/".join(part.strip("/") for part in (self.s3_key_prefix or "", filename) if part)
        return fetch_span(f"s3://{self.s3_bucket or _BUCKET}/{key}", offset, length, self.timeout, self.max_retries + 1)


def _need_s3(what: str) -> None:
    if importlib.util.find_spec("boto3") is None:
        raise MissingExtra(what, "s3")
