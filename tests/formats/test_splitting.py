"""Splitting of JSONL: the joined chunks are the input, nothing is overwritten, damage is reported."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.cli.main import app
from tamis.errors import RunConflict, UsageError
from tamis.formats.compression.streams import StreamReader, StreamWriter
from tamis.formats.splitting import ChunkLimit, split_file
from tests.support.cli_runner import CliRunner
from tests.support.limits import examples


def decoded(path: Path) -> bytes:
    with StreamReader.open(path) as reader:
        return b"".join(iter(lambda: reader.read(1 << 20), b""))


def lines_of(n: int, seed: int = 0) -> bytes:
    rng = random.Random(seed)
    return b"".join(json.dumps({"id": i, "text": "x" * rng.randrange(200)}).encode() + b"\n" for i in range(n))


def test_plain_chunks_are_named_in_order_and_complete(tmp_path: Path) -> None:
    data = lines_of(1000)
    (tmp_path / "big.jsonl").write_bytes(data)
    done = split_file(tmp_path / "big.jsonl", tmp_path / "out", ChunkLimit(20_000))
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names[:2] == ["big-00000.jsonl", "big-00001.jsonl"]
    assert names == [p.name for p in done.paths]
    chunks = [p.read_bytes() for p in done.paths]
    assert b"".join(chunks) == data
    assert all(len(c) <= 20_000 and c.endswith(b"}\n") for c in chunks)
    # As full as possible: no two neighbours would fit together.
    assert all(len(a) + b.index(b"\n") + 1 > 20_000 for a, b in itertools.pairwise(chunks))
    assert (done.n_rows, done.n_bytes, done.n_oversize) == (1000, len(data), 0)


@settings(max_examples=examples(150), deadline=None)
@given(
    lines=st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=30),
    ends=st.booleans(),
    limit=st.integers(1, 60),
    n_rows=st.none() | st.integers(1, 5),
    read_bytes=st.integers(1, 40),
    pending_bytes=st.integers(1, 20),
)
def test_any_cut_preserves_every_byte(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    ends: bool,
    limit: int,
    n_rows: int | None,
    read_bytes: int,
    pending_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("split")
    data = b"\n".join(lines) + (b"\n" if ends else b"")
    (folder / "a.jsonl").write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tamis.formats.splitting._READ_BYTES", read_bytes)
        patch.setattr("tamis.formats.splitting._PENDING_BYTES", pending_bytes)
        done = split_file(folder / "a.jsonl", folder / "out", ChunkLimit(limit, n_rows))
    chunks = [p.read_bytes() for p in done.paths]
    assert b"".join(chunks) == data
    assert all(chunk.endswith(b"\n") for chunk in chunks[:-1])
    for chunk in chunks:
        n_lines = len(chunk.removesuffix(b"\n").split(b"\n"))
        assert len(chunk) <= limit or n_lines == 1
        assert n_rows is None or n_lines <= n_rows
    assert done.n_rows == data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    assert done.n_oversize == sum(len(chunk) > limit for chunk in chunks)


@pytest.mark.parametrize("codec", ["gz", "zst", "bz2", "xz"])
def test_compressed_input_and_output(tmp_path: Path, codec: str) -> None:
    data = lines_of(500)
    source = tmp_path / f"a.jsonl.{codec}"
    with StreamWriter(source, codec) as out:
        out.write(data)
    done = split_file(source, tmp_path / "same", ChunkLimit(10_000))
    assert {"".join(p.suffixes) for p in done.paths} == {f".jsonl.{codec}"}
    assert b"".join(decoded(p) for p in done.paths) == data
    done = split_file(source, tmp_path / "plain", ChunkLimit(10_000), "none")
    assert b"".join(p.read_bytes() for p in done.paths) == data
    assert {p.suffix for p in done.paths} == {".jsonl"}


def test_rows_limit(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines_of(25))
    done = split_file(tmp_path / "a.ndjson", tmp_path / "out", ChunkLimit(10**9, 10))
    assert [p.read_bytes().count(b"\n") for p in done.paths] == [10, 10, 5]


def test_existing_chunks_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines_of(10))
    out = tmp_path / "out"
    out.mkdir()
    (out / "a-00003.jsonl.gz").write_text("mine")
    (out / "a-notes.txt").write_text("mine too")
    with pytest.raises(RunConflict, match=r"a-00003\.jsonl\.gz exists already"):
        split_file(tmp_path / "a.jsonl", out, ChunkLimit(100))
    assert sorted(p.name for p in out.iterdir()) == ["a-00003.jsonl.gz", "a-notes.txt"]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines_of(100))
    n_synced = []

    def no_space(descriptor: int) -> None:
        n_synced.append(descriptor)
        if len(n_synced) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    result = CliRunner().invoke(app, ["split", str(tmp_path / "a.jsonl"), str(tmp_path / "out"), "--size", "1kB"])
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert len(n_synced) == 3
    assert list((tmp_path / "out").iterdir()) == []


def test_a_damaged_stream_keeps_what_can_be_read_and_says_so(tmp_path: Path) -> None:
    data = lines_of(2000)
    whole = gzip.compress(data)
    (tmp_path / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    result = CliRunner().invoke(app, ["split", str(tmp_path / "a.jsonl.gz"), str(tmp_path / "out"), "--size", "10kB"])
    assert result.exit_code == 3
    assert "is damaged" in result.stderr
    kept = b"".join(decoded(p) for p in sorted((tmp_path / "out").iterdir()))
    assert len(kept) > len(data) // 4
    assert data.startswith(kept)


def test_empty_input(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    result = CliRunner().invoke(app, ["split", str(tmp_path / "a.jsonl"), str(tmp_path / "out")])
    assert (result.exit_code, result.output) == (0, "0 chunks, 0 lines, 0 B decoded\n")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("a.csv", {}, "cannot tell its format"),
        ("none.jsonl", {}, "no such file"),
        ("folder", {}, "is a folder"),
        ("a.jsonl", {"compress": "rar"}, "--compress"),
    ],
)
def test_mistakes(tmp_path: Path, name: str, options: dict[str, str], words: str) -> None:
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=words):
        split_file(tmp_path / name, tmp_path / "out", ChunkLimit(100), **options)
    assert not (tmp_path / "out").exists()


def test_summary(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "%s"}\n' % (b"x" * 300) + lines_of(3))
    result = CliRunner().invoke(app, ["split", str(tmp_path / "a.jsonl"), str(tmp_path / "out"), "--size", "250B"])
    assert result.exit_code == 0
    assert "1 chunk larger than --size" in result.output
    assert "4 lines" in result.output
