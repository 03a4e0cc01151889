"""The files of a Wikipedia dump, from what the dump says of itself."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tamis.errors import DownloadError, UsageError
from tamis.stages.text.download.base.url_generation import URLGenerator
from tamis.stages.text.download.fetch import fetch_bytes

_LIST_BYTES = 64 << 20
_JOB = "articlesmultistreamdump"
_FILE = re.compile(r"[A-Za-z0-9_-]+-\d{8}-pages-articles-multistream[A-Za-z0-9._-]*\.xml[A-Za-z0-9._-]*\.bz2")


@dataclass
class WikipediaUrlGenerator(URLGenerator):
    """`dump_date`: YYYYMMDD; None: the latest dump whose articles are complete."""

    language: str = "en"
    dump_date: str | None = None
    wikidumps_index_prefix: str = "https://dumps.wikimedia.org"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+([-_][a-z0-9]+)*", self.language):
            raise UsageError(f"Wikipedia: expected the code of a language such as en or zh-yue, got {self.language!r}")
        if self.dump_date is not None and not re.fullmatch(r"\d{8}", self.dump_date):
            raise UsageError(f"Wikipedia: expected dump_date as YYYYMMDD, got {self.dump_date!r}")

    def generate_urls(self) -> list[str]:
        """Return the URLs of the files with articles, in the order of the articles."""
        if self.dump_date is not None:
            names = self._files(self.dump_date)
            if names is None:
                raise UsageError(
                    f"the articles of the Wikipedia dump {self.dump_date} ({self.language}) are not complete yet; "
                    "choose an earlier date, or none for the latest complete dump"
                )
            return names
        for date in self._dates():
            try:
                names = self._files(date)
            except DownloadError as exc:
                if not exc.permanent:
                    raise
                continue  # a dump that has only begun has no status yet
            if names is not None:
                return names
        raise DownloadError(self._base(), "no dump with complete articles is listed")

    def _base(self) -> str:
        return f"{self.wikidumps_index_prefix.rstrip('/')}/{self.language.replace('-', '_')}wiki"

    def _dates(self) -> list[str]:
        page = fetch_bytes(f"{self._base()}/", _LIST_BYTES).decode("utf-8", "replace")
        return sorted(set(re.findall(r'href="(\d{8})/?"', page)), reverse=True)

    def _files(self, date: str) -> list[str] | None:
        """Return the URLs of the articles' files; None if the dump is not finished."""
        url = f"{self._base()}/{date}/dumpstatus.json"
        try:
            job: dict[str, Any] = json.loads(fetch_bytes(url, _LIST_BYTES))["jobs"][_JOB]
            if job["status"] != "done":
                return None
            names = [str(name) for name in job["files"] if "index" not in name]
        except (ValueError, TypeError, KeyError, RecursionError) as exc:
            raise DownloadError(url, f"expected the state of a dump: {type(exc).__name__}: {exc}", True) from exc
        strange = [name for name in names if not _FILE.fullmatch(name)]
        if strange or not names:
            what = f"{strange[0][:80]!r}" if strange else "none"
            raise DownloadError(url, f"expected names of files with articles, got {what}", True)
        return [f"{self._base()}/{date}/{name}" for name in sorted(names, key=_in_order)]


def _in_order(name: str) -> list[int | str]:
    """Return a key that sorts `multistream2` before `multistream10`."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
