"""Local text: which files, how they are cut, and further passes."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

from tamis.demo.local_text import find_files, local_texts, read_text


def test_files_by_name_without_caches_and_links(tmp_path: Path) -> None:
    for name in ("a.py", "b.txt", "LICENSE", "copyright", "changelog.gz", "c.so", "__pycache__/d.py", "sub/README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = [str(Path(path).relative_to(tmp_path)) for path in find_files([str(tmp_path)])]
    assert found == ["LICENSE", "a.py", "b.txt", "changelog.gz", "copyright", "sub/README.md"]


def test_what_is_not_text_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_bytes("grün".encode())
    (tmp_path / "good.txt.gz").write_bytes(gzip.compress(b"zipped"))
    (tmp_path / "latin.txt").write_bytes(b"gr\xfcn")
    (tmp_path / "binary.txt").write_bytes(b"a\0b")
    (tmp_path / "bad.txt.gz").write_bytes(b"not gzip")
    (tmp_path / "large.txt").write_bytes(b"a" * 2_000_001)
    (tmp_path / "link.txt").symlink_to(tmp_path / "good.txt")
    names = ("good.txt", "good.txt.gz", "latin.txt", "binary.txt", "bad.txt.gz", "large.txt", "link.txt", "none.txt")
    assert [read_text(str(tmp_path / name)) for name in names] == ["grün", "zipped", None, None, None, None, None, None]


def test_pieces_end_at_lines_and_further_passes_differ(tmp_path: Path) -> None:
    lines = [f"line {i} " + "word " * 20 + "\n" for i in range(1000)]
    (tmp_path / "a.txt").write_text("".join(lines))
    found = list(islice(local_texts(1, [str(tmp_path)]), 40))
    first = [t for t in found if t.copy == 0]
    assert "".join(t.text for t in first) == "".join(lines)
    assert [t.part for t in first] == list(range(len(first)))
    assert all(t.text.endswith("\n") for t in found)
    assert "".join(t.text for t in found if t.copy == 1) == "".join(lines[1:])
    assert len({t.text for t in found}) == len(found)


def test_duplicates_and_symbols_are_left_out_and_the_end_is_reached(tmp_path: Path) -> None:
    text = "A sentence that is long enough to be taken as a document of the demo corpus, and one line.\n"
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").write_text(text)
    (tmp_path / "c.txt").write_text("#$%^&* " * 50)
    assert [t.text for t in local_texts(1, [str(tmp_path)])] == [text]
