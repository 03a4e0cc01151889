"""Benchmark data, made once under bench-data/: real text, repeated to the size wanted."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("TAMIS_BENCH_DATA", HERE.parent / "bench-data"))
SHARED = Path(os.environ.get("TAMIS_SHARED", HERE.parent.parent / "shared"))


def base() -> list[Path]:
    """About 100 MB of JSONL in four files: the shared corpus, or text found on this machine."""
    folder = DATA / "base"
    parts = sorted(folder.glob("*.jsonl"))
    if parts:
        return parts
    folder.mkdir(parents=True, exist_ok=True)
    corpus = sorted((SHARED / "corpus").glob("*.jsonl.zst"))
    if corpus:
        import zstandard

        for part in corpus:
            with open(part, "rb") as source, open(folder / (part.stem + ".tmp"), "wb") as target:
                zstandard.ZstdDecompressor().copy_stream(source, target)
            os.rename(folder / (part.stem + ".tmp"), folder / part.stem)
    else:
        from tamis.demo.corpus import corpus_dir, gather

        gather(folder / "gathered", 100_000_000)
        for part in sorted(Path(corpus_dir(folder / "gathered")).glob("*.jsonl")):
            shutil.copy(part, folder / part.name)
    return sorted(folder.glob("*.jsonl"))


def many(n_times: int) -> Path:
    """Return the base files n times over, as separate files."""
    folder = DATA / f"many-{n_times}"
    if not folder.exists():
        temporary = DATA / f"many-{n_times}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for k in range(n_times):
            for part in base():
                shutil.copy(part, temporary / f"{k:03d}-{part.name}")
        temporary.rename(folder)
    return folder


def _whole(path: Path, write) -> Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)
    return path


def one_file(n_times: int) -> Path:
    """One large .jsonl."""

    def write(target: Path) -> None:
        with open(target, "wb") as out:
            for _ in range(n_times):
                for part in base():
                    with open(part, "rb") as source:
                        shutil.copyfileobj(source, out, 1 << 20)

    return _whole(DATA / f"one-{n_times}" / "all.jsonl", write)


def one_gz(n_times: int) -> Path:
    """One large .jsonl.gz, of several members."""

    def write(target: Path) -> None:
        member = b"".join(gzip.compress(part.read_bytes(), 6, mtime=0) for part in base())
        with open(target, "wb") as out:
            for _ in range(n_times):
                out.write(member)

    return _whole(DATA / f"gz-{n_times}" / "all.jsonl.gz", write)


def one_row_group(n_times: int) -> Path:
    """One Parquet file with a single row group."""

    def write(target: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        texts = [json.loads(line)["text"] for part in base() for line in part.read_bytes().splitlines()]
        table = pa.concat_tables(
            [pa.table({"id": [f"{k}-{i}" for i in range(len(texts))], "text": texts}) for k in range(n_times)]
        )
        pq.write_table(table, target, row_group_size=len(table), compression="zstd")

    return _whole(DATA / f"rows-{n_times}" / "all.parquet", write)


def long_line() -> Path:
    """Ordinary records around one line of 300 MB."""

    def write(target: Path) -> None:
        text = base()[0].read_bytes()
        with open(target, "wb") as out:
            out.write(text)
            out.write(b'{"id": "huge", "text": "')
            for _ in range(300):
                out.write(b"x" * 1_000_000)
            out.write(b'"}\n')
            out.write(text)

    return _whole(DATA / "long" / "all.jsonl", write)


def tiny_files(n_files: int) -> Path:
    """Many files of one record each."""
    folder = DATA / f"tiny-{n_files}"
    if not folder.exists():
        temporary = DATA / f"tiny-{n_files}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        for i in range(n_files):
            place = temporary / f"{i // 1000:04d}"
            if i % 1000 == 0:
                place.mkdir(parents=True)
            (place / f"{i:07d}.jsonl").write_bytes(b'{"id": %d, "text": "one small document"}\n' % i)
        temporary.rename(folder)
    return folder
