"""WikipediaIterator: articles of a dump file (XML, as a rule in many bzip2 streams), in bounded memory."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from xml.parsers import expat

from tamis.errors import FormatError
from tamis.sizes import check_integer
from tamis.stages.text.download.base.iterator import DocumentIterator
from tamis.stages.text.download.streams import Decoded

log = logging.getLogger("tamis.download")
_READ_BYTES = 1 << 20
_PAGE_CHARS = 16 << 20  # MediaWiki itself takes 2 MB of text


class WikipediaIterator(DocumentIterator):
    """Articles: pages of the main namespace that are no redirects. Others are counted."""

    def __init__(self, language: str = "en", log_frequency: int = 1000) -> None:
        check_integer(log_frequency, "WikipediaIterator: log_frequency")
        self._language, self._log_frequency = language, log_frequency

    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        name, n_articles = os.path.basename(file_path), 0
        try:
            for page in _pages(file_path):
                reason = _not_an_article(page)
                if reason:
                    self._skip(reason)
                    continue
                n_articles += 1
                if n_articles % self._log_frequency == 0:
                    log.info("%s: %s articles", name, f"{n_articles:,}")
                title = page.get("title", "")
                yield {
                    "title": title,
                    "id": page.get("id", ""),
                    "url": f"https://{self._language}.wikipedia.org/wiki/{quote(title.replace(' ', '_'))}",
                    "language": self._language,
                    "source_id": name,
                    "raw_content": page["text"],
                }
        except FormatError as exc:
            log.warning("%s: %s; the articles before it were read", file_path, exc)
            self._skip("damage in the file (all behind it)")

    def output_columns(self) -> list[str]:
        return ["title", "id", "url", "language", "source_id", "raw_content"]


def _not_an_article(page: dict[str, str]) -> str:
    if page.get("ns", "0") != "0":
        return "pages outside of the main namespace"
    if "redirect" in page:
        return "redirects"
    if "too large" in page:
        return "pages above 16 million characters"
    return "" if page.get("text") else "pages without text"


def _pages(path: str) -> Iterator[dict[str, str]]:
    """Each <page>: title, ns, id, text; `redirect` and `too large` where they apply."""
    reader = _PageReader()
    with Decoded.open(path) as stream:
        while not reader.ended:
            fault = reader.feed(stream.read(_READ_BYTES))
            while reader.done:
                yield reader.done.popleft()
            if fault is not None:
                raise fault


class _PageReader:
    """An XML parser that keeps one page at a time. Documents with a DTD are refused: entities could grow without bound."""

    _KEPT = ("title", "ns", "id", "text")

    def __init__(self) -> None:
        self.done: deque[dict[str, str]] = deque()
        self.ended = False
        self._path: list[str] = []
        self._page: dict[str, str] = {}
        self._parts: list[str] | None = None
        self._n_chars = 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._doctype

    def feed(self, data: bytes) -> FormatError | None:
        """Parse on; b"" is the end. Returns what is wrong: pages before it are in `done`."""
        self.ended = not data
        try:
            self._parser.Parse(data, self.ended)
        except expat.ExpatError as exc:
            return FormatError(f"no valid XML: {exc}")
        except FormatError as exc:
            return exc
        return None

    def _doctype(self, *_: object) -> None:
        raise FormatError("the XML declares a document type, which a dump does not")

    def _start(self, name: str, _attributes: object) -> None:
        name = name.rpartition(":")[2]
        self._path.append(name)
        if name == "page":
            self._page = {}
        elif name == "redirect":
            self._page["redirect"] = ""
        # The id of a page is its own child; a revision and its contributor have ids, too.
        elif (name in self._KEPT[:3] and self._path[-2:-1] == ["page"]) or (
            name == "text" and self._path[-2:-1] == ["revision"]
        ):
            self._parts, self._n_chars = [], 0

    def _text(self, data: str) -> None:
        if self._parts is None:
            return
        self._n_chars += len(data)
        if self._n_chars > _PAGE_CHARS:
            self._parts, self._page["too large"] = None, ""
        else:
            self._parts.append(data)

    def _end(self, _name: str) -> None:
        name = self._path.pop()
        if self._parts is not None and name in self._KEPT:
            self._page[name] = "".join(self._parts)
            self._parts = None
        elif name == "page":
            self.done.append(self._page)
            self._page = {}
