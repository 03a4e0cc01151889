"""ArxivIterator: the TeX files of each paper in an archive, in bounded memory and without unpacking."""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

from tamis.errors import FormatError
from tamis.formats.compression.source import StreamFault
from tamis.images.tar import BLOCK, padded
from tamis.sizes import check_integer
from tamis.stages.notes import InputFault
from tamis.stages.text.download.arxiv.comments import without_comments
from tamis.stages.text.download.arxiv.tar import Gap, is_tar_header, read_members
from tamis.stages.text.download.base.iterator import DocumentIterator
from tamis.stages.text.download.streams import Decoded

log = logging.getLogger("tamis.download")
_TEX_BYTES = 16 << 20
_INPUT = re.compile(r"\\(?:input|include)\s*\{([^{}\n]{1,200})\}")
_ENCODINGS = {
    "utf8": "utf-8",
    "utf8x": "utf-8",
    "latin1": "latin-1",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin9": "iso8859-15",
    "ansinew": "cp1252",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1252": "cp1252",
    "koi8-r": "koi8-r",
    "applemac": "mac-roman",
}


class ArxivIterator(DocumentIterator):
    """Papers of an archive: each member is a gzipped TeX file, or a gzipped archive of several.

    Papers without TeX (PDF only), in an unknown encoding or above 16 MiB of TeX are left out and counted. Damaged
    papers, and what is no paper, go to quarantine, and reading continues after them.
    """

    def __init__(self, log_frequency: int = 1000, extract_tmp_dir: str | None = None) -> None:
        check_integer(log_frequency, "ArxivIterator: log_frequency")
        self._log_frequency = log_frequency
        if extract_tmp_dir is not None:
            log.info("ArxivIterator: extract_tmp_dir is not needed, archives are read without unpacking them")

    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        archive, n_papers, file_bytes = os.path.basename(file_path), 0, os.path.getsize(file_path)
        with Decoded.open(file_path) as stream:
            try:
                for member in read_members(stream):
                    if isinstance(member, Gap):
                        begin, length = stream.stored(member.offset, member.n_bytes)
                        lost = file_bytes if member.is_cut else length
                        self._fault(InputFault(file_path, begin, length, member.reason, lost_bytes=lost))
                        continue
                    if not member.is_file:
                        continue
                    if not member.name.endswith(".gz"):
                        self._skip("papers without TeX")
                        continue
                    self.record_offset = stream.stored(member.offset, 0)[0]
                    try:
                        files = self._tex_files(stream, member.n_bytes)
                    except FormatError as exc:
                        why = f"paper {member.name!r} is damaged: {exc}"
                        length = stream.stored(0, BLOCK + padded(member.n_bytes))[1]
                        self._fault(InputFault(file_path, self.record_offset, length, why, n=1, lost_bytes=length))
                        continue
                    if files is None:
                        continue
                    n_papers += 1
                    if n_papers % self._log_frequency == 0:
                        log.info("%s: %s papers", archive, f"{n_papers:,}")
                    name = os.path.basename(member.name).removesuffix(".gz")
                    yield {"id": paper_id(name), "source_id": archive, "content": in_reading_order(files)}
            except StreamFault as exc:  # a tar that is compressed as a whole cannot be entered in its middle
                begin, lost = min(exc.compressed_offset, file_bytes), exc.lost_bytes(file_bytes)
                self._fault(InputFault(file_path, begin, file_bytes - begin, exc.describe(file_bytes), lost_bytes=lost))
            except FormatError as exc:
                self._fault(InputFault(file_path, 0, file_bytes, str(exc), lost_bytes=file_bytes))

    def output_columns(self) -> list[str]:
        return ["id", "source_id", "content"]

    def _tex_files(self, archive: Decoded, n_bytes: int) -> dict[str, str] | None:
        """Name -> text of a paper's TeX files; None (and counted why) where there are none to be had.

        FormatError for a damaged paper.
        """
        with Decoded(io.BufferedReader(_Window(archive, n_bytes)), "gz") as paper:
            try:
                files = _read_tex(paper)
                paper.check_rest()
            except _TooLarge:
                return self._none("papers above 16 MiB of TeX")
        texts = {name: _decode(data) for name, data in files.items()}
        if not texts:
            return self._none("papers without TeX")
        if any(text is None for text in texts.values()):
            return self._none("papers in an unknown encoding")
        return {name: text for name, text in texts.items() if text is not None}

    def _none(self, reason: str) -> dict[str, str] | None:
        self._skip(reason)
        return None


class _TooLarge(Exception):
    pass


class _Window(io.RawIOBase):
    """The next `n_bytes` of a stream as a file, for a decoder that must not read beyond."""

    def __init__(self, stream: Decoded, n_bytes: int) -> None:
        self._stream, self._left = stream, n_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


def _read_tex(paper: Decoded) -> dict[str, bytes]:
    """Return the .tex members of an archive, or the only file if it is not an archive."""
    first = paper.read(BLOCK)
    if not is_tar_header(first):
        data = first + paper.read(_TEX_BYTES)
        if len(data) > _TEX_BYTES:
            raise _TooLarge
        return {} if not data or data.startswith(b"%PDF") else {"paper.tex": data}
    tex_files: dict[str, bytes] = {}
    bytes_left = _TEX_BYTES
    for member in read_members(paper, first):
        if isinstance(member, Gap):
            raise FormatError(member.reason)
        if member.is_file and member.name.lower().endswith((".tex", ".ltx")):
            bytes_left -= member.n_bytes
            if bytes_left < 0:
                raise _TooLarge
            tex_files[os.path.normpath(member.name)] = paper.read(member.n_bytes)
    return tex_files


def _decode(data: bytes) -> str | None:
    """Decode UTF-8, or the encoding that the file declares.

    For others Latin-1, if it has none of the bytes that are no letters there.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    declared = re.search(rb"\\usepackage\[([a-z0-9-]+)\]\{inputenc\}", data[:20_000])
    name = _ENCODINGS.get(declared[1].decode()) if declared else None
    if name is None and any(0x80 <= byte < 0xA0 for byte in data):
        return None
    try:
        return data.decode(name or "latin-1")
    except UnicodeDecodeError:
        return None


def paper_id(name: str) -> str:
    """Return the id that arXiv uses, derived from the name of a member.

    >>> paper_id("2401.00001"), paper_id("hep-th9901001"), paper_id("odd")
    ('2401.00001', 'hep-th/9901001', 'odd')
    """
    match = re.fullmatch(r"([a-zA-Z-]+)(\d[\d.]*)", name)
    return f"{match[1]}/{match[2]}" if match else name


def in_reading_order(files: dict[str, str]) -> list[str]:
    r"""Return the texts in reading order.

    The file with \documentclass comes first, with the files it inputs inserted where they are input; then those
    that no file inputs.
    """
    used: set[str] = set()
    main = next((n for n, text in files.items() if re.search(r"\\document(class|style)\b", text)), None)
    if main is None:
        return [files[name] for name in sorted(files)]
    text = _expand(main, files, os.path.dirname(main), used, 0)
    return [text, *(files[name] for name in sorted(files) if name not in used)]


def _expand(name: str, files: dict[str, str], folder: str, used: set[str], depth: int) -> str:
    used.add(name)

    def put_in(match: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(folder, match[1].strip()))
        included = next((n for n in (path, path + ".tex") if n in files), None)
        if included is None or included in used or depth >= 10:
            return match[0]
        return _expand(included, files, folder, used, depth + 1)

    return _INPUT.sub(put_in, without_comments(files[name]))
