"""WikipediaIterator: articles of a dump file (XML, as a rule in many bzip2 streams), in bounded memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from xml.parsers import expat

from tamis.errors import FormatError
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.reentry import Effort, next_member
from tamis.formats.compression.source import CUT, StreamFault
from tamis.sizes import check_integer
from tamis.stages.notes import InputFault
from tamis.stages.text.download.base.iterator import DocumentIterator
from tamis.stages.text.download.streams import Decoded

log = logging.getLogger("tamis.download")
_TOKEN_BYTES, _DEPTH = 16 << 20, 100
_PAGE, _ROOT = b"<page>", b"<mediawiki>"
_HELD_BYTES = 4 << 20  # of articles; the streams of a dump have about 1 MB, a block of bzip2 900 kB
_REREAD_FACTOR, _REREAD_BYTES = (
    16,
    64 << 20,
)  # of a damaged dump: so often its size, and so much more, is read in search of pages
_PAGE_CHARS = 16 << 20  # MediaWiki itself takes 2 MB of text


class WikipediaIterator(DocumentIterator):
    """Articles: pages of the main namespace that are no redirects. Others are counted.

    Damaged parts of a dump go to quarantine, and reading continues after them; articles from there on have the field
    `resynchronised`.
    """

    def __init__(self, language: str = "en", log_frequency: int = 1000) -> None:
        check_integer(log_frequency, "WikipediaIterator: log_frequency")
        self._language, self._log_frequency = language, log_frequency

    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        name, n_articles = os.path.basename(file_path), 0
        for page in _pages(file_path):
            if isinstance(page, InputFault):
                self._fault(page)
                continue
            reason = _not_an_article(page.fields)
            if reason:
                self._skip(reason)
                continue
            n_articles += 1
            if n_articles % self._log_frequency == 0:
                log.info("%s: %s articles", name, f"{n_articles:,}")
            self.record_offset = page.offset
            title = page.fields.get("title", "")
            article = {
                "title": title,
                "id": page.fields.get("id", ""),
                "url": f"https://{self._language}.wikipedia.org/wiki/{quote(title.replace(' ', '_'))}",
                "language": self._language,
                "source_id": name,
                "raw_content": page.fields["text"],
            }
            yield {**article, "resynchronised": True} if page.resynchronised else article

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


@dataclass
class _Page:
    """The title, ns, id and text of a <page>; `redirect` and `too large` where they apply.

    `offset`: where it begins in the file or, if that is compressed, its stream. `resynchronised`: there was a fault
    before it.
    """

    fields: dict[str, str]
    offset: int
    resynchronised: bool = False


def _pages(path: str) -> Iterator[_Page | InputFault]:
    """Yield the pages of a dump, and a fault for each part that cannot be read.

    Reading continues at the next bzip2 stream, or the next <page>.
    """
    codec = codec_of(path)
    with open(path, "rb", buffering=0) as raw:
        file_bytes = os.fstat(raw.fileno()).st_size
        effort = Effort(_REREAD_FACTOR * file_bytes + _REREAD_BYTES)
        begin: int | None = 0
        while begin is not None:
            raw.seek(begin)
            stream = Decoded(raw, codec)
            pages = _Pages(stream, path, file_bytes, is_entered=begin > 0)
            try:
                yield from pages
                return
            except FormatError as exc:
                yield from pages.checked()
                damaged = pages.damaged_from(exc)
                begin = None
                if codec is not None and effort.spend(stream.n_stored):
                    begin = next_member(raw, codec, stream.place + 1, bool, effort)
                is_cut = begin is None and isinstance(exc, StreamFault) and exc.kind == CUT
                length = max(1, (file_bytes if begin is None else begin) - damaged)
                why = exc.reason if isinstance(exc, StreamFault) else str(exc)
                yield InputFault(path, damaged, length, why, lost_bytes=file_bytes if is_cut else length)


class _Pages:
    """The pages of as much of a dump as can be decoded.

    After invalid XML, parsing resumes at the next <page>.
    """

    def __init__(self, stream: Decoded, path: str, file_bytes: int, is_entered: bool) -> None:
        self._stream, self._path, self._file_bytes = stream, path, file_bytes
        self._data = b""  # decoded and not parsed; what the stream gives next follows it
        self._parser = None if is_entered else _PageParser(0)
        self._resynchronised = is_entered
        # Pages of the compressed stream at hand, whose checksum was not compared yet, and how many bytes they have.
        self._held: list[_Page] = []
        self._held_bytes = 0
        self._has_given = False  # pages of the stream at hand that were too many to hold

    def __iter__(self) -> Iterator[_Page | InputFault]:
        lost: tuple[int, int, str] | None = None  # from which byte of the file on, from which decoded one, and why
        while True:
            if self._parser is None:
                is_page = yield from self._resynchronise(lost)
                if not is_page:
                    return
                lost = None
                self._parser = _PageParser(self._offset, _ROOT)
            parser, stream = self._parser, self._stream
            if not self._data:
                self._data = stream.read_part()
                yield from self.checked()
            is_end = not self._data
            wrong = parser.feed(self._data, None if stream.codec is None else stream.place)
            self._hold(parser.take_done())
            if is_end or stream.codec is None or self._held_bytes > _HELD_BYTES:
                self._has_given = True
                yield from self._take_held()
            if is_end:
                # The end tag of a dump may be lost with what was damaged before; no page is.
                if wrong and (parser.in_page or not self._resynchronised):
                    cut = self._fault(parser.page_offset, stream.offset, wrong)
                    yield cut._replace(lost_bytes=self._file_bytes)
                return
            if wrong:
                lost = (parser.page_offset if parser.in_page else self._offset, stream.offset - len(self._data), wrong)
                self._data = self._data[parser.n_parsed :]
                self._parser, self._resynchronised = None, True
            else:
                self._data = b""

    def _resynchronise(self, lost: tuple[int, int, str] | None) -> Generator[InputFault, None, bool]:
        """Move to the next <page>, yield the fault for what was lost before it, and return False if there is none."""
        try:
            is_page = self._find_page()
        except FormatError:
            if lost is not None and lost[0] < self._stream.place:  # else the fault of the stream covers it
                yield self._fault(*lost)
            raise
        if lost is not None:
            yield self._fault(*lost)
        return is_page

    def _hold(self, pages: list[_Page]) -> None:
        """Keep pages until the checksum of their stream was compared."""
        for page in pages:
            page.resynchronised = self._resynchronised
            self._held.append(page)
            self._held_bytes += sum(len(text) for text in page.fields.values())

    def damaged_from(self, exc: FormatError) -> int:
        """Return the offset from which a fault of the compressed stream makes the file unreadable.

        Pages from that offset on were not returned.
        """
        if not self._has_given or not isinstance(exc, StreamFault):
            return self._stream.place
        n_held = self._stream.stored(0, self._held_bytes)[1]
        return max(self._stream.place, self._stream.base + exc.compressed_offset - n_held)

    def checked(self) -> list[_Page]:
        """Take the pages of earlier streams than the one at hand."""
        if not self._held or self._held[-1].offset == self._stream.place:
            return []
        self._has_given = False
        return self._take_held()

    def _take_held(self) -> list[_Page]:
        pages, self._held, self._held_bytes = self._held, [], 0
        return pages

    @property
    def _offset(self) -> int:
        """Offset of the data in the file; in a compressed file, offset of its stream."""
        return self._stream.place - (len(self._data) if self._stream.codec is None else 0)

    def _find_page(self) -> bool:
        """Move to the next <page>; False where there is none."""
        while (at := self._data.find(_PAGE)) < 0:
            part = self._stream.read_part()
            if not part:
                self._data = b""
                return False
            self._data = self._data[-len(_PAGE) :] + part
        self._data = self._data[at:]
        return True

    def _fault(self, begin: int, decoded: int, reason: str) -> InputFault:
        """Return the fault for the bytes lost from `begin` to the current start of the data."""
        n_decoded = self._stream.offset - len(self._data) - decoded
        length = self._offset - begin or self._stream.stored(0, n_decoded)[1]
        return InputFault(self._path, begin, max(1, length), reason, lost_bytes=max(1, length))


class _PageParser:
    """An XML parser that keeps one page at a time.

    Documents with a DTD are refused: entities could grow without bound.
    """

    _KEPT = ("title", "ns", "id", "text")

    def __init__(self, offset: int, root: bytes = b"") -> None:
        """Create the iterator. `offset`: that of the first byte in the file, if it is plain.

        `root`: parsed before it, where that is not the beginning of a dump.
        """
        self._base, self._n_fed, self._stream_offset = offset - len(root), 0, -1
        self._done: list[_Page] = []
        self.page_offset = offset
        """Offset of the current or last page in the file, or of its stream."""
        self._refused_at = -1
        self.n_parsed = 0
        """Bytes of the last data before the fault in it, 1 at least."""
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
        if root:
            self.feed(root, None)

    @property
    def in_page(self) -> bool:
        return "page" in self._path

    def take_done(self) -> list[_Page]:
        done, self._done = self._done, []
        return done

    def feed(self, data: bytes, stream_offset: int | None) -> str:
        """Parse more data (b"": the end), and return the fault, if any; pages before it are complete.

        `stream_offset`: where the stream begins that the data is from, if it is compressed.
        """
        self._stream_offset = -1 if stream_offset is None else stream_offset
        n_before, self._n_fed = self._n_fed, self._n_fed + len(data)
        try:
            self._parser.Parse(data, not data)
        except expat.ExpatError as exc:
            wrong = f"no valid XML: {exc}"
        except FormatError as exc:
            wrong = str(exc)
        else:
            # A token, a tag with its attributes for example, is held until it ends.
            if self._n_fed - max(0, self._parser.CurrentByteIndex) <= _TOKEN_BYTES:
                return ""
            self.n_parsed = len(data)
            return f"a tag or other token of more than {_TOKEN_BYTES:,} bytes"
        at = self._refused_at if self._refused_at >= 0 else self._parser.CurrentByteIndex
        self.n_parsed = max(1, at - n_before)
        return wrong

    def _doctype(self, *_: object) -> None:
        raise FormatError("the XML declares a document type, which a dump does not")

    def _start(self, name: str, _attributes: object) -> None:
        name = name.rpartition(":")[2]
        self._path.append(name)
        if len(self._path) > _DEPTH:
            raise FormatError(f"elements are nested more than {_DEPTH} deep, which those of a dump are not")
        if name == "page":
            if "page" in self._path[:-1]:
                self._path.pop()
                self._refused_at = self._parser.CurrentByteIndex
                raise FormatError("a page begins inside of another")
            self._page = {}
            in_file = self._base + self._parser.CurrentByteIndex
            self.page_offset = in_file if self._stream_offset < 0 else self._stream_offset
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
            self._done.append(_Page(self._page, self.page_offset))
            self._page = {}
