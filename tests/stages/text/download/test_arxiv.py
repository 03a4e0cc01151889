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

from tamis.errors import FormatError
from tamis.stages.text.download.arxiv import (
    ArxivDownloader,
    ArxivDownloadExtractStage,
    ArxivExtractor,
    ArxivIterator,
    ArxivUrlGenerator,
)
from tamis.stages.text.download.arxiv.extract import find_macros, put_in_macros, running_text
from tamis.stages.text.download.arxiv.iterator import in_reading_order
from tamis.stages.text.download.arxiv.tar import read_members
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
        found.append((member.name, member.n_bytes, stream.read(2)))
    assert found == [("a.tex", 3, b"on"), (long, 1000, b"xx"), ("b.tex", 3, b"tw")]


def test_folders_and_links_are_no_files() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, kind in (("d", tarfile.DIRTYPE), ("l.tex", tarfile.SYMTYPE), ("h.tex", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            made.addfile(info)
    assert [m.is_file for m in read_members(Decoded(io.BytesIO(out.getvalue()), None))] == [False, False, False]


def test_an_archive_made_to_fill_memory_is_refused() -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    with pytest.raises(FormatError, match="a header of 1,099,511,627,776 bytes: refused"):
        list(read_members(Decoded(io.BytesIO(info.tobuf(tarfile.GNU_FORMAT)), None)))
    with pytest.raises(FormatError, match="a member should begin"):
        list(read_members(Decoded(io.BytesIO(b"x" * 512), None)))
    with pytest.raises(FormatError, match="ends inside a member"):
        list(read_members(Decoded(io.BytesIO(tar(a=b"x" * 2000)[:1024]), None)))


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
        "papers that are damaged": 4,
        "papers above 16 MiB of TeX": 1,
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name]


def test_a_damaged_archive_ends_and_is_counted(tmp_path: Path) -> None:
    path = archive(
        tmp_path, **{"2401.00001.gz": gzip.compress(b"\\section{A}"), "2401.00002.gz": gzip.compress(bytes(5000))}
    )
    path.write_bytes(path.read_bytes()[:1024] + b"x" * 512)
    iterator = ArxivIterator()
    assert [r["id"] for r in iterator.iterate(str(path))] == ["2401.00001"]
    assert iterator.take_skipped()["damage in the file (all behind it)"] == 1


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
