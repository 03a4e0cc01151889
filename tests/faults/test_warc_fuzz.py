"""WARC files with random damage: every byte and record is accounted for, and undamaged ones are read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor
from tamis.formats.compression import zstd
from tamis.formats.warc.records import WarcFault, WarcRecord, WarcScanner
from tamis.pipeline import Pipeline
from tamis.stages.text.download.base import DocumentExtractor, DocumentIterateExtractStage
from tamis.stages.text.download.common_crawl import CommonCrawlWarcIterator
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import FileGroupTask
from tests.support import warc_files
from tests.support.run_dirs import run_dir_path

CODECS = ("gz", "gz", "gz", "zst", None)
KINDS = ("response", "response", "response", "request", "warcinfo", "metadata")
BAD_HEADERS = (
    {"length": -5},
    {"length": "x"},
    {"length": ""},
    {"length": 3},
    {"length": 10**15},
    {"length": 70_000},
    {"extra": b"X: " + b"y" * 200_000 + b"\r\n"},
    {"extra": b"X: y\r\n" * 2000},
    {"extra": b"X: \xff\x00\r\n no colon\r\n"},
)


@dataclass
class Mutant:
    data: bytes
    codec: str | None
    blocks: dict[int, bytes]  # of all records, by number
    whole: set[int]  # numbers of the records whose stored bytes are as they were


def mutant(seed: int) -> Mutant:
    """Make a file of some records with one to three kinds of damage."""
    rng = random.Random(seed)
    codec = rng.choice(CODECS)
    blocks, parts, whole = {}, [], set()
    for i in range(rng.randint(1, 20)):
        kind = rng.choice(KINDS)
        blocks[i] = warc_files.response(warc_files.page(i)) + rng.randbytes(rng.choice((0, 0, 10, 3000))).hex().encode()
        bad = rng.choice(BAD_HEADERS) if rng.random() < 0.05 else {}
        text = warc_files.record(i, blocks[i], kind, **bad)  # type: ignore[arg-type]
        if not bad or bad.get("extra", b"").startswith(b"X: \xff"):
            whole.add(i)
        level = rng.choice((0, 1, 6))
        parts.append(
            gzip.compress(text, level, mtime=0)
            if codec == "gz"
            else zstd.ZstdCompressor(options=CHECKED).compress(text, zstd.ZstdCompressor.FLUSH_FRAME)
            if codec
            else text
        )
    pieces = [(i, part) for i, part in enumerate(parts)]  # the number of the record, -1 for what is no record
    for _ in range(rng.randint(1, 3)):
        pieces = _damaged(pieces, rng)
    return Mutant(b"".join(p for _, p in pieces), codec, blocks, whole & {i for i, _ in pieces})


CHECKED: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}


def _damaged(pieces: list[tuple[int, bytes]], rng: random.Random) -> list[tuple[int, bytes]]:
    at = rng.randrange(len(pieces))
    part = pieces[at][1]
    if not part:
        return pieces
    begin = rng.randrange(len(part))
    end = min(len(part), begin + rng.choice((1, 1, 1, 2, 20, 437)))
    match rng.randrange(8):
        case 0 | 1 | 2:
            part = part[:begin] + bytes(b ^ rng.randrange(1, 256) for b in part[begin:end]) + part[end:]
        case 3:
            part = part[:begin] + bytes(end - begin) + part[end:]
        case 4:
            part = part[:begin] + part[end:]
        case 5:
            part = part[:begin] + rng.randbytes(end - begin) + part[begin:]
        case 6:
            return [*pieces[:at], (-1, rng.randbytes(rng.choice((1, 100, 5000)))), *pieces[at:]]
        case 7:
            return [*pieces[:at], (-1, part[:begin])]  # cut
    return [*pieces[:at], (-1, part), *pieces[at + 1 :]]


def scan(found: Mutant) -> list[WarcRecord | WarcFault]:
    return list(WarcScanner(io.BytesIO(found.data), found.codec, 1 << 20))


def check(seed: int) -> Mutant:
    found = mutant(seed)
    items = scan(found)
    _check_places(found, items)
    numbers = Counter(int(i.record_id) for i in items if isinstance(i, WarcRecord) and i.record_id.isdecimal())
    # A digit of another record's id may be damaged in a plain file, which nothing tells.
    missing = [n for n in found.whole if numbers[n] != 1 and not (found.codec is None and numbers[n])]
    assert not missing, (seed, found.codec, missing)
    for item in items:
        if isinstance(item, WarcRecord) and item.record_id.isdecimal():
            number = int(item.record_id)
            # Nothing tells that a byte of a plain file is another one, not even of an id.
            is_doubtful = found.codec is None and (number not in found.whole or numbers[number] > 1)
            assert item.block == found.blocks.get(number) or is_doubtful, seed
    faults = [i for i, item in enumerate(items) if isinstance(item, WarcFault)]
    marks = [i > faults[0] if faults else False for i in range(len(items))]
    assert all(i.resynchronised == mark for i, mark in zip(items, marks, strict=True) if isinstance(i, WarcRecord)), (
        seed
    )
    return found


def _check_places(found: Mutant, items: list[WarcRecord | WarcFault]) -> None:
    """Check that reading resumes where a fault ends, records begin where they are stored, and nothing overlaps."""
    end: int | None = 0  # of the last fault; of a record, no item tells it
    position = 0
    for item in items:
        assert item.offset >= position, item
        if end is not None:
            assert not found.data[end : item.offset].strip(b"\r\n\0"), item
        position, end = item.offset, None
        if isinstance(item, WarcFault):
            position = end = item.offset + item.length
            assert item.offset < end <= len(found.data), item
    if end is not None:
        assert not found.data[end:].strip(b"\r\n\0")


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_some_mutants(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 20_000, 2000))
def test_many_mutants(first: int) -> None:
    for seed in range(first, first + 2000):
        check(seed)


def written(seeds: range, folder: Path) -> None:
    """Mutants as the files of a crawl: documents, skipped records and quarantine add up to what the files hold."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, items, lost = [], Counter[str](), 0
    for seed in seeds:
        found = mutant(seed)
        path = folder / f"{seed}.warc{'.' + found.codec if found.codec else ''}"
        path.write_bytes(found.data)
        paths.append(str(path))
        for item in scan(found):
            is_fault = isinstance(item, WarcFault)
            items["fault" if is_fault else "response" if item.kind == "response" else "other"] += 1  # type: ignore[union-attr]
            lost += item.lost_bytes(len(found.data)) if isinstance(item, WarcFault) else 0
    pipeline = Pipeline(
        "crawl",
        stages=[DocumentIterateExtractStage(CommonCrawlWarcIterator(), _Address()), JsonlWriter(str(folder / "out"))],
    )
    pipeline.run(InProcessExecutor(), initial_tasks=[FileGroupTask("set", paths)], quarantine_limit="100%")
    ledger = pipeline.last_result.ledger
    assert ledger.problems() == []
    metrics = ledger.stages[0].metrics
    skipped = {name: n for name, n in metrics.items() if name.startswith("skipped: ")}
    assert ledger.written.n == metrics["documents"]
    assert metrics["documents"] + sum(skipped.values()) == items["response"] + items["other"]
    assert (ledger.n_bad_ranges, ledger.lost_bytes) == (items["fault"], lost)
    entries = [
        json.loads(line)
        for p in (run_dir_path(folder / "out") / "quarantine").glob("*")
        for line in p.read_text().splitlines()
    ]
    assert len(entries) == items["fault"]
    assert all(e["file"] in paths and e["offset"] + e["length"] <= Path(e["file"]).stat().st_size for e in entries)
    rows = [json.loads(line) for p in (folder / "out").glob("*.jsonl") for line in p.read_text().splitlines()]
    assert len(rows) == ledger.written.n


class _Address(DocumentExtractor):
    """Pages by their address, without a parser."""

    def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
        return {"url": record["url"], "text": hashlib.sha256(record["content"]).hexdigest()}

    def input_columns(self) -> list[str]:
        return ["url", "content"]

    def output_columns(self) -> list[str]:
        return ["url", "text"]


def test_some_mutants_through_writing(tmp_path: Path) -> None:
    written(range(30), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_mutants_through_writing(tmp_path: Path) -> None:
    for first in range(0, 2000, 100):
        written(range(first, first + 100), tmp_path / str(first))
