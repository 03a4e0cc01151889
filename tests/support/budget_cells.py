"""The budget matrix: jobs of every kind under three budgets, on first and later runs, seen from outside.

A cell is one command. tests/faults/test_budget_matrix.py asks that no cell goes over its budget, benchmarks/budget.py
writes what they take into docs/explanation/benchmarks-budget.md.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tamis.sizes import parse_size
from tests.stages.text.tokens import small_tokenizers
from tests.support.outside import measured
from tests.support.warc_files import members, record, response

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = ("300MB", "512MB", "1GB")
_SET = ("--set", "input={source}", "--set", "output={target}")
JOBS = {
    "copy": ("run", "copy", *_SET),
    "28 filters": ("run", "heuristic_english", *_SET),
    "exact": ("dedup", "exact", "{source}", "{target}"),
    "fuzzy": ("dedup", "fuzzy", "{source}", "{target}"),
    "lines": ("dedup", "lines", "{source}", "{target}"),
    "substrings": ("dedup", "substrings", "{source}", "{target}"),
    "decontaminate": ("decontaminate", "{source}", "{target}", "--against", "{beside}/evaluation"),
    "buckets and mix": ("run", "{beside}/mix.yaml", *_SET),
    "tokenize": ("tokenize", "{source}", "{target}", "--tokenizer", "{beside}/tokenizer", "--format", "npy"),
    "WARC": ("curate", "{beside}/warc", "{target}", "--preset", "web-english", "--no-card"),
}
"""Commands by job. {beside}: the folder with what `make_input` writes beside the documents."""
REFUSED = (
    "mapped_file",
    "shared_map",
    "shared_memory",
    "many_small_maps",
    "forks",
    "pool",
    "rewriting",
    "mapping_children",
    "programs",
    "unmapped_file",
    "nameless_file",
)
"""Kinds of tests/faults/hostile_stages.py that end in a refusal.

The others go on with less, or leave their children to fail.
"""
HOSTILE = (*REFUSED, "generations", "daemons")
WANTED = 2  # a hostile stage wants so many budgets
_WORDS = [
    "the",
    "be",
    "to",
    "of",
    "and",
    "a",
    "in",
    "that",
    "have",
    "it",
    "for",
    "not",
    "on",
    "with",
    "he",
    "as",
    "you",
    "do",
    "at",
    "this",
    "but",
    "his",
    "by",
    "from",
    "they",
    "we",
    "say",
    "her",
    "she",
    "or",
    "an",
    "will",
    "my",
    "one",
    "all",
    "would",
    "there",
    "their",
    "what",
    "so",
    "up",
    "out",
    "if",
    "about",
    "who",
    "get",
    "which",
    "go",
    "me",
    "when",
    "make",
    "can",
    "like",
    "time",
    "no",
    "just",
    "him",
    "know",
    "take",
    "people",
    "into",
    "year",
    "your",
    "good",
    "some",
    "could",
    "them",
    "see",
    "other",
    "than",
    "then",
    "now",
    "look",
    "only",
    "come",
    "its",
    "over",
    "think",
    "also",
    "back",
    "after",
    "use",
    "two",
    "how",
    "our",
    "work",
    "first",
    "well",
    "way",
    "even",
    "new",
    "want",
    "because",
    "any",
    "these",
    "give",
    "day",
    "most",
    "us",
    "river",
    "mountain",
    "window",
    "letter",
    "garden",
    "market",
    "morning",
    "answer",
    "question",
    "history",
    "science",
]
_STAGES = """
stages:
  - {{_target_: tamis.stages.text.io.reader.DocumentReader, file_paths: {source}}}
  - {{_target_: tests.faults.hostile_stages.Hostile, kind: {kind}, mb: {mb}, path: {mapped}}}
  - {{_target_: tamis.stages.text.io.writer.JsonlWriter, path: {target}}}
"""


_MIX = """
input: {source}
output: {target}
steps:
  - buckets: {score: score, n: 20}
  - mix: {by: quality_bucket, curve: [0, 3], target: 400k}
write: {card: false}
"""


@dataclass(frozen=True)
class Cell:
    """What one command took. `status`: its exit code; `left`: processes that outlived it."""

    job: str
    budget: str
    is_first: bool
    peak_bytes: int
    status: int
    seconds: float
    left: list[str]
    output: str

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= parse_size(self.budget)


def documents(n_bytes: int, seed: int = 1) -> Iterator[dict[str, object]]:
    """Texts in sentences and lines.

    One in ten is a copy of an earlier one, one in ten nearly so, and a few are long.
    """
    rng, earlier, made = random.Random(seed), ["a first text to be copied"], 0
    for i in itertools.count():
        if made >= n_bytes:
            return
        kind = rng.random()
        if kind < 0.1:
            text = rng.choice(earlier)
        elif kind < 0.2:
            text = rng.choice(earlier) + " and a few words more"
        else:
            text = _text(rng, 30_000 if kind > 0.9995 else rng.randrange(40, 500))
            earlier = [*earlier[-200:], text]
        made += len(text)
        yield {"id": i, "text": text, "score": kind, "meta": {"source": f"made/{i % 7}", "n": i}}


def _text(rng: random.Random, n_words: int) -> str:
    lines: list[str] = []
    while n_words > 0:
        words = rng.choices(_WORDS, k=rng.randrange(6, 22))
        n_words -= len(words)
        lines.append(" ".join(words).capitalize() + ".")
        if rng.random() < 0.1:
            lines.append("All rights reserved. Read more about this on our other pages.")
    return "\n".join(lines)


def make_input(folder: Path, n_bytes: int) -> None:
    """As much text as two JSONL files, one compressed file and one Parquet file, a quarter each."""
    folder.mkdir(parents=True)
    for i, name in enumerate(("a.jsonl", "b.jsonl", "c.jsonl.zst", "d.parquet")):
        found = documents(n_bytes // 4, seed=i)
        if name.endswith("parquet"):
            pq.write_table(pa.Table.from_pylist(list(found)), folder / name, row_group_size=5000)
            continue
        lines = "".join(json.dumps(d) + "\n" for d in found).encode()
        (folder / name).write_bytes(zstandard.compress(lines) if name.endswith("zst") else lines)
    _make_beside(beside(folder), n_bytes)


def beside(source: Path) -> Path:
    """Return the folder with what some jobs need besides the documents of `source`."""
    return source.with_name(f"{source.name}-beside")


def _make_beside(folder: Path, n_bytes: int) -> None:
    """Write an evaluation set, a recipe, a tokenizer, and pages as WARC files of half the size of the documents."""
    (folder / "evaluation").mkdir(parents=True)
    items = itertools.islice(documents(n_bytes, seed=0), 0, 500, 10)
    (folder / "evaluation" / "items.jsonl").write_text("".join(json.dumps({"text": d["text"]}) + "\n" for d in items))
    (folder / "mix.yaml").write_text(_MIX)
    small_tokenizers.save(folder / "tokenizer")
    (folder / "warc").mkdir()
    for i in range(2):
        with open(folder / "warc" / f"{i}.warc.gz", "wb") as out:
            for document in documents(n_bytes // 4, seed=i):
                lines = "".join(f"<p>{line}</p>" for line in str(document["text"]).split("\n"))
                page = f"<html><body><main>{lines}</main></body></html>".encode()
                out.writelines(members(record(int(str(document["id"])), response(page))))


def command_of(job: str, budget: str, source: Path, target: Path, folder: Path) -> list[str]:
    """Return the command of a job: one of JOBS, or of HOSTILE, a stage between a reader and a writer."""
    if job in HOSTILE:
        mb = parse_size(budget) * WANTED // 10**6
        mapped, recipe = folder / f"mapped-{mb}", folder / "hostile.yaml"
        if not mapped.exists():
            mapped.touch()
            os.truncate(mapped, mb * 10**6)
        recipe.write_text(_STAGES.format(source=source, kind=job, mb=mb, mapped=mapped, target=target))
        what = ["run", str(recipe), "--allow-module", "tests.faults.hostile_stages"]
    else:
        what = [word.format(source=source, target=target, beside=beside(source)) for word in JOBS[job]]
    return [sys.executable, "-m", "tamis.cli.start", *what, "--memory", budget]


def run_cells(job: str, budget: str, source: Path, folder: Path, home: Path | None = None) -> Iterator[Cell]:
    """Yield the first run and a later one.

    First: nothing compiled and nothing learned, or, with kernels in `home`, nothing learned.
    """
    own = folder / "home"
    shutil.rmtree(own, ignore_errors=True)
    if home is None:
        own.mkdir(parents=True)
    else:
        shutil.copytree(home, own, ignore=lambda _, names: [n for n in names if n == "profiles"])
    environment = {
        "HOME": str(own),
        "XDG_CACHE_HOME": str(own / ".cache"),
        "TAMIS_PROFILES": "",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    for is_first in (True, False):
        target = folder / "out"
        shutil.rmtree(target, ignore_errors=True)
        seen = measured(command_of(job, budget, source, target, folder), 600.0, **environment)
        shutil.rmtree(target, ignore_errors=True)
        yield Cell(job, budget, is_first, seen.peak_bytes, seen.status, seen.seconds, seen.left, seen.output)


def outcome(cell: Cell) -> str:
    """How a command ended, in a few words."""
    if cell.status == 0:
        return "done"
    advised = re.findall(r"--memory (\d+)MB or more", cell.output)
    return f"refused: needs {int(advised[-1]):,} MB" if advised else f"exit code {cell.status}"
