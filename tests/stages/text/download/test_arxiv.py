"""arXiv from archives to running text, with archives made here (and some that are made to do harm)."""

from __future__ import annotations

import gzip
import io
import itertools
import random
import string
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tamis.stages.text.download.arxiv import (
    ArxivDownloader,
    ArxivDownloadExtractStage,
    ArxivExtractor,
    ArxivIterator,
    ArxivUrlGenerator,
)
from tamis.stages.text.download.arxiv.extract import find_macros, put_in_macros, running_text
from tamis.stages.text.download.arxiv.iterator import in_reading_order
from tamis.stages.text.download.arxiv.tar import Gap, StreamMember, read_members
from tamis.stages.text.download.streams import Decoded
from tamis.tasks import EmptyTask

PAPER = r"""\documentclass{article}
\newcommand{\eg}{e.g.}
\begin{document}
\title{T}
\begin{abstract}We show, \eg, 5\% of it. % a remark
\end{abstract}
\input{body}
\bibliography{x}
\end{document}
"""


def tar(format: int = tarfile.GNU_FORMAT, **files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def archive(tmp_path: Path, **papers: bytes) -> Path:
    path = tmp_path / "arXiv_src_2401_001.tar"
    path.write_bytes(tar(**{f"2401/{name}": data for name, data in papers.items()}))
    return path


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_with_short_and_long_names(format: int) -> None:
    long = "d" * 80 + "/" + "é" * 40 + ".tex" if format != tarfile.USTAR_FORMAT else "d" * 80 + "/" + "e" * 60 + ".tex"
    stream = Decoded(io.BytesIO(tar(format, **{"a.tex": b"one", long: b"x" * 1000, "b.tex": b"two"})), None)
    found = []
    for member in read_members(stream):
        assert isinstance(member, StreamMember)
        found.append((member.name, member.n_bytes, stream.read(2)))
    assert found == [("a.tex", 3, b"on"), (long, 1000, b"xx"), ("b.tex", 3, b"tw")]


def test_folders_and_links_are_no_files() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, kind in (("d", tarfile.DIRTYPE), ("l.tex", tarfile.SYMTYPE), ("h.tex", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            made.addfile(info)
    found = read_members(Decoded(io.BytesIO(out.getvalue()), None))
    assert [m.is_file for m in found if isinstance(m, StreamMember)] == [False, False, False]


def listed(data: bytes) -> list[str | tuple[int, int]]:
    """Names of members, and (offset, length) of gaps."""
    found = read_members(Decoded(io.BytesIO(data), None))
    return [m.name if isinstance(m, StreamMember) else (m.offset, m.n_bytes) for m in found]


def test_what_follows_blocks_of_zeros_is_another_archive_or_a_gap() -> None:
    one, two = tar(**{"a.tex": b"one"})[:1024], tar(**{"b.tex": b"two"})
    for n_zeros in (512, 10_240, 2 << 20):
        assert listed(one + bytes(n_zeros) + two) == ["a.tex", "b.tex"]
        assert listed(one + bytes(n_zeros)) == ["a.tex"]
    assert listed(one + bytes(1024) + b"left by a program") == ["a.tex"]
    assert listed(one + bytes(512) + b"\x01" * 512) == ["a.tex", (1024, 1024)]
    # A hole in the file: the header of a member and part of its bytes are zeros.
    assert listed(one + bytes(4096) + b"\x01" * 512 + two) == ["a.tex", (1024, 4608), "b.tex"]


def test_reading_continues_at_the_next_header() -> None:
    one, two = tar(**{"a.tex": b"one"})[:1024], tar(**{"b.tex": b"two"})
    for bad in (_with_size(one, b"-0000001000"), _with_size(one, b"7777777777"), b"x" + one[1:], b"\x01" * 1024):
        assert listed(one + bad + two) == ["a.tex", (1024, 1024), "b.tex"]


def _with_size(archive: bytes, size: bytes) -> bytes:
    header = bytearray(archive[:512])
    header[124:136] = size.ljust(12, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + archive[512:]


def test_an_archive_made_to_fill_memory_is_refused() -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    for data, reason in (
        (info.tobuf(tarfile.GNU_FORMAT), "a header of 1,099,511,627,776 bytes: refused"),
        (b"x" * 512, "at decoded byte 0 a member should begin, and does not"),
        (tar(a=b"x" * 2000)[:1024], "the archive ends inside a member"),
    ):
        (gap,) = read_members(Decoded(io.BytesIO(data), None))
        assert gap == Gap(0, len(data), reason, is_cut="ends inside" in reason)
    found = list(read_members(Decoded(io.BytesIO(gzip.compress(tar(a=b"x" * 2000)[:1024])), "gz")))
    assert found[1:] == [Gap(0, 1024, "the archive ends inside a member", is_cut=True)]


def test_papers_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.stages.text.download.arxiv.iterator._TEX_BYTES", 100_000)
    project = {
        "./main.tex": PAPER.encode(),
        "body.tex": b"\\section{A}\nText.",
        "fig.eps": bytes(300_000),
        "../../evil.tex": b"e",
    }
    text, wrong = gzip.compress(rb"\section{B}" + random.Random(1).randbytes(2000).hex().encode()), b"\0\0\0\0"
    several = gzip.compress(tar(**project))
    damaged = {
        "2401.00010.gz": text[:-100],  # cut
        "2401.00011.gz": text[:-8] + wrong + text[-4:],  # another checksum
        "2401.00012.gz": several[:-8] + wrong + several[-4:],  # behind the end of an archive
    }
    path = archive(
        tmp_path,
        **{
            "2401.00001.gz": gzip.compress(tar(**project)),
            "2401.00002.gz": gzip.compress(b"\\section{One file}" + b"x" * 600) + b"more",  # behind all of it
            "2401.00003.pdf": b"%PDF-1.4",
            "hep-th9901001.gz": gzip.compress("\\usepackage[latin1]{inputenc}\\section{Übung}".encode("latin-1")),
            "2401.00005.gz": gzip.compress(b"\\section{\x81\xff}"),
            "2401.00006.gz": gzip.compress(b"x")[:-9] + b"\0",
            "2401.00007.gz": gzip.compress(bytes(5_000_000)),
            "2401.00008.gz": gzip.compress(tar(**{"a.txt": b"no tex"})),
            "2401.00009.gz": gzip.compress(b"%PDF-1.4"),
            **damaged,
        },
    )
    iterator = ArxivIterator()
    found = list(iterator.iterate(str(path)))
    assert [(r["id"], r["source_id"], len(r["content"])) for r in found] == [
        ("2401.00001", path.name, 2),
        ("2401.00002", path.name, 1),
        ("hep-th/9901001", path.name, 1),
    ]
    assert found[0]["content"][0].index("\\section{A}") > found[0]["content"][0].index("\\end{abstract}")
    assert "Übung" in found[2]["content"][0]
    assert iterator.take_skipped() == {
        "papers without TeX": 3,
        "papers in an unknown encoding": 1,
        "papers above 16 MiB of TeX": 1,
    }
    faults = iterator.take_faults()
    assert [f.reason.split()[1] for f in faults] == [f"'2401/2401.000{i}.gz'" for i in ("06", 10, 11, 12)]
    assert [(f.path, f.n, f.length % 512, f.lost_bytes == f.length) for f in faults] == [(str(path), 1, 0, True)] * 4
    assert all(b"2401/2401.0" in path.read_bytes()[f.offset : f.offset + 100] for f in faults)
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


def test_a_damaged_archive_is_read_after_the_damage(tmp_path: Path) -> None:
    names = [f"2401.0000{i}" for i in range(1, 6)]
    path = archive(tmp_path, **{f"{name}.gz": gzip.compress(rb"\section{A}" + name.encode()) for name in names})
    data = path.read_bytes()
    path.write_bytes(data[:1024] + bytes([data[1024] ^ 1]) + data[1025:])
    iterator = ArxivIterator()
    assert [r["id"] for r in iterator.iterate(str(path))] == [names[0], *names[2:]]
    (fault,) = iterator.take_faults()
    assert fault[:3] == (str(path), 1024, 1024)
    assert (fault.n, fault.lost_bytes) == (0, 1024)


def test_the_rest_of_a_compressed_archive_is_quarantined(tmp_path: Path) -> None:
    names = [f"2401.0000{i}" for i in range(1, 6)]
    text = {n: random.Random(n).randbytes(2000).hex().encode() for n in names}
    path = archive(tmp_path, **{f"{name}.gz": gzip.compress(rb"\section{A}" + text[name]) for name in names})
    packed = bytearray(gzip.compress(path.read_bytes()))
    del packed[len(packed) // 2 : len(packed) // 2 + 100]
    path = path.rename(tmp_path / "a.tar.gz")
    path.write_bytes(packed)
    iterator = ArxivIterator()
    papers = [r["id"] for r in iterator.iterate(str(path))]
    assert papers == names[: len(papers)]
    assert 1 <= len(papers) < 5
    rest = iterator.take_faults()[-1]
    assert rest.path == str(path)
    assert rest.offset + rest.length == len(packed)
    assert 0 < rest.lost_bytes <= len(packed)


def test_an_archive_that_ends_in_a_paper_is_quarantined(tmp_path: Path) -> None:
    path = archive(
        tmp_path, **{"2401.00001.gz": gzip.compress(b"\\section{A}"), "2401.00002.gz": gzip.compress(bytes(5000))}
    )
    path.write_bytes(path.read_bytes()[:1024] + b"x" * 512)
    iterator = ArxivIterator()
    assert [r["id"] for r in iterator.iterate(str(path))] == ["2401.00001"]
    (fault,) = iterator.take_faults()
    assert fault[:3] == (str(path), 1024, 512)


def test_files_are_put_where_they_are_input() -> None:
    files = {
        "p/main.tex": r"\documentclass{x} \input{a} % \input{c}",
        "p/a.tex": r"A \include{sub/b.tex}",
        "p/sub/b.tex": r"B \input{a}",
        "p/c.tex": "C",
    }
    assert in_reading_order(files) == [r"\documentclass{x} A B \input{a} ", "C"]
    assert in_reading_order({"b.tex": "2", "a.tex": "1"}) == ["1", "2"]


def test_a_paper_becomes_its_running_text() -> None:
    files = in_reading_order({"main.tex": PAPER, "body.tex": "\\section{A}\nMore, \\eg this."})
    made = ArxivExtractor().extract({"id": "1", "source_id": "s", "content": files})
    assert made == {
        "text": "\\begin{abstract}We show, e.g., 5\\% of it. \n\\end{abstract}\n\\section{A}\nMore, e.g. this.",
        "id": "1",
        "source_id": "s",
    }
    extractor = ArxivExtractor()
    assert extractor.extract({"content": ["\\documentclass{x}"]}) is None
    assert extractor.take_skipped() == {"papers without running text": 1}


def test_where_running_text_begins_and_ends() -> None:
    assert running_text(r"intro \chapter{A} text \appendix more") == r"\chapter{A} text"
    assert running_text("plain words") == "plain words"
    assert running_text(r"\begin{document}x\section*{A}y\begin{thebibliography}{9}z") == r"\section*{A}y"


def test_macros_that_would_grow_without_end_are_left() -> None:
    bomb = {"\\a": "\\b" * 1000, "\\b": "\\c" * 1000}
    assert len(put_in_macros("\\a" * 1000, bomb)) < 100_000
    assert find_macros(r"\def\a{\a x}") == {}
    assert put_in_macros(r"\R and \Rn", {"\\R": "X"}) == r"X and \Rn"
    assert put_in_macros(r"\\R\R2\Rn\R\é\R", {"\\R": "X", "\\Rn": r"\R!"}) == r"\XX2X!X\éX"
    many = {"\\" + "".join(name): "".join(name)[::-1] for name in itertools.product(string.ascii_lowercase, repeat=3)}
    words = r"\abc \xyz \none " * 2000
    assert put_in_macros(words, many) == r"cba zyx \none " * 2000  # a look at each word, not at each macro for each


def test_the_whole_way_through_an_object_store(tmp_path: Path, s3: Any) -> None:
    data = tar(
        **{
            "2401/2401.00001.gz": gzip.compress(b"\\section{A} text"),
            "2401/2401.00002.gz": gzip.compress(b"\\section{B}"),
        }
    )
    s3.create_bucket(Bucket="arxiv")
    for name in (
        "arXiv_src_2401_001.tar",
        "arXiv_src_9912_001.tar",
        "arXiv_src_manifest.xml",
        "old/arXiv_src_2401_001.tar",
    ):
        s3.put_object(Bucket="arxiv", Key=f"src/{name}", Body=data)
    told = []
    from tamis.stores.s3 import Bucket, client

    client(Bucket("arxiv", requester_pays=True)._options).meta.events.register(
        "before-parameter-build.s3", lambda params, **_: told.append(params.get("RequestPayer"))
    )
    assert ArxivUrlGenerator().generate_urls() == [f"s3://arxiv/src/arXiv_src_{n}_001.tar" for n in (9912, 2401)]
    stage = ArxivDownloadExtractStage(str(tmp_path), url_limit=1, record_limit=1)
    tasks: list[Any] = [EmptyTask()]
    for part in stage.decompose():
        tasks = part.process_batch(tasks)
    row = {"text": "\\section{A} text", "id": "2401.00001", "source_id": "arXiv_src_9912_001.tar"}
    assert tasks[0].to_pyarrow().to_pylist() == [{**row, "file_name": "arXiv_src_9912_001.tar"}]
    assert len(told) >= 4  # two lists, a look and a range
    assert set(told) == {"requester"}
    assert ArxivDownloader(str(tmp_path)).download("arXiv_src_9912_001.tar") == str(tmp_path / "arXiv_src_9912_001.tar")
