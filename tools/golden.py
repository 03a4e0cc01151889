"""Compare the outputs and the speed of this tree with those of an earlier commit, job by job.

Covers: some forty jobs of every kind (filters, deduplication, curations, formats, kills and resumes, images, video,
models on the CPU). Each runs from a wheel of the baseline commit and from one of this tree, over the same input, in the
same session. JSONL is compared by its bytes, Parquet, Arrow and tars by their decoded records, clips by their bytes;
exit codes, counts and verdicts must agree, too. Changes that are intended stand in `ACCEPTED` with their reasons; every
other difference counts. `--pairs N` compares CPU seconds and the time to start: N runs of each side, in turn.

Usage: python tools/golden.py [--base REV] [--only NAME] [--pairs N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "bench-data" / "golden"
MEMORY = ("--memory", "1GB")
_WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "be",
    "by",
    "on",
    "not",
    "he",
    "his",
    "but",
    "at",
    "are",
    "this",
    "have",
    "from",
    "which",
    "or",
    "had",
    "they",
    "were",
    "her",
    "all",
    "has",
    "their",
    "one",
    "we",
    "there",
    "been",
    "would",
    "who",
    "will",
    "more",
    "when",
    "out",
    "so",
    "said",
    "what",
    "up",
    "its",
    "about",
    "into",
    "them",
    "than",
    "can",
    "other",
    "time",
    "new",
    "some",
    "could",
    "these",
    "two",
    "may",
    "first",
    "then",
    "do",
    "any",
    "like",
    "my",
    "now",
    "over",
    "such",
    "our",
    "man",
    "even",
    "most",
    "made",
    "after",
    "also",
    "did",
    "many",
    "off",
    "before",
]
# Of the JSON that a command prints at its end: what depends on the machine and the moment.
_VOLATILE = (
    "seconds",
    "peak",
    "budget",
    "output",
    "report",
    "run_dir",
    "run_id",
    "scratch",
    "prediction",
    "mb_per_s",
    "counters",
)


@dataclass(frozen=True)
class Accepted:
    """A difference from earlier commits that is intended.

    `place`: the last key of a printed value or, with dots, all keys that lead to it; "file " and a name; "exit code".
    `change`: how the change begins, where only some are accepted; `jobs`: those where it is accepted, none for all.
    """

    place: str
    reason: str
    change: str = ""
    jobs: tuple[str, ...] = ()

    def explains(self, job: str, place: str, change: str) -> bool:
        keys = re.sub(r"\[\d+\]", "", place)
        is_place = keys == self.place or ("." not in self.place and keys.rpartition(".")[2] == self.place)
        return is_place and change.startswith(self.change) and (not self.jobs or job in self.jobs)


_TEXT_RULE = "C4's rules are preceded by a filter that names documents without text: the same go, with better reasons"
_C4 = ("filter c4", "filter gopher+c4")
_NO_SUBSTRINGS = "the baseline has no deduplication of substrings"
_SUBSTRINGS = ("dedup substrings",)
_PUT_TOGETHER = "a curation counts the files that it put together, not those before"
_SKIPPED_FILES = "passed_over is called skipped_files"
# Every other difference fails the comparison. An entry goes when no baseline in use shows it any more.
ACCEPTED = (
    Accepted("passed_over", _SKIPPED_FILES, "gone, was []"),
    Accepted("skipped_files", _SKIPPED_FILES, "new, []"),
    Accepted("skipped_records", "records that are not read are counted by reason", "new, {}"),
    Accepted("n_sessions", "figures are of the whole run, over all its sessions", "new, 1"),
    Accepted("read_bytes", "deduplications print what they read, too", "new"),
    Accepted("left_out", "curations name the steps left out because a package is missing", "new, []"),
    Accepted("passes", "passes have labels, titles and weights, and decisions are passes, too", '[{"name"'),
    Accepted("stages", _TEXT_RULE, '[{"name"', _C4),
    Accepted("drops", _TEXT_RULE, '[{"stage"', _C4),
    Accepted("n_files", "small tables are joined into one file at the end of a run", "2 -> 1", ("video",)),
    Accepted("n_files", _PUT_TOGETHER, "1 -> 5", ("curate packed",)),
    Accepted("written_bytes", _PUT_TOGETHER, "801533 -> 256595", ("curate packed",)),
    Accepted("read_bytes", "the bytes of videos count, not those of the list of their names", jobs=("video",)),
    Accepted("read_bytes_now", "the bytes of videos count, not those of the list of their names", jobs=("video",)),
    Accepted("exit code", _NO_SUBSTRINGS, "2 -> 0", _SUBSTRINGS),
    Accepted("file part-*.jsonl", _NO_SUBSTRINGS, "None ->", _SUBSTRINGS),
    Accepted("file quarantine", _NO_SUBSTRINGS, "None ->", _SUBSTRINGS),
    Accepted("printed", _NO_SUBSTRINGS, "null ->", _SUBSTRINGS),
)


# -- the two sides ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Side:
    """One version of Tamis, installed from its wheel into a folder of its own."""

    name: str
    folder: Path

    def command(self, *arguments: str) -> list[str]:
        start = "import sys; from tamis.cli.start import main; sys.exit(main())"
        return [sys.executable, "-c", start, *arguments]

    def environment(self) -> dict[str, str]:
        cache = WORK / "cache" / self.name
        return {**os.environ, "PYTHONPATH": str(self.folder), "TAMIS_CACHE_DIR": str(cache), "PYTHONHASHSEED": "0"}


def install(name: str, revision: str | None) -> Side:
    """Build the wheel of a revision (None: of the working tree) and install it; a revision is built once."""
    folder = WORK / "sides" / (revision or "tree")
    if revision is None or not (folder / "tamis").is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        source = ROOT
        if revision is not None:
            source = WORK / "source" / revision
            shutil.rmtree(source, ignore_errors=True)
            source.mkdir(parents=True)
            archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", revision], stdout=subprocess.PIPE)
            subprocess.run(["tar", "-x", "-C", str(source)], stdin=archive.stdout, check=True)
            if archive.wait():
                raise SystemExit(f"git archive {revision} failed")
        print(f"building a wheel of {revision or 'the working tree'}", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), str(source)]
        subprocess.run(pip, check=True)
    return Side(name, folder)


# -- inputs -----------------------------------------------------------------------------------------------------------
def _text(rng: random.Random, n_words: int) -> str:
    words = rng.choices(_WORDS, k=n_words)
    sentences = [" ".join(words[i : i + 12]).capitalize() + "." for i in range(0, n_words, 12)]
    return "\n".join(" ".join(sentences[i : i + 4]) for i in range(0, len(sentences), 4))


def _documents(n: int, seed: int = 1) -> list[dict[str, Any]]:
    """Texts of all lengths with exact and near duplicates, repeated lines, nulls, odd values and other languages."""
    rng = random.Random(seed)
    docs: list[dict[str, Any]] = []
    for i in range(n):
        kind = rng.random()
        text: Any = _text(rng, rng.choice([3, 20, 60, 150, 400]))
        if docs and kind < 0.12:
            text = rng.choice(docs)["text"]
        elif docs and kind < 0.25 and isinstance(other := rng.choice(docs)["text"], str):
            text = other.replace("the", "teh", 2)
        elif kind < 0.3:
            text = rng.choice([None, "", "???", "Ünïcödé 北京市 тест 😀 " * 20, "{ lorem ipsum }" * 9, 17])
        elif kind < 0.5:
            text += "\nAll rights reserved. Subscribe to our newsletter today."
        docs.append({"id": f"doc-{i:05d}", "text": text, "n": i, "score": rng.random(), "tags": ["a", "b"][: i % 3]})
    return docs


def _make_text(folder: Path) -> None:
    docs = _documents(1500)
    lines = [json.dumps(d, ensure_ascii=i % 2 == 0) for i, d in enumerate(docs)]
    lines[100:100] = ["", "not json", '{"text": "unfinished']
    plain = folder / "jsonl"
    plain.mkdir()
    for k in range(3):
        (plain / f"{k}.jsonl").write_text("\n".join(lines[k::3]) + "\n")
    clean = [json.dumps(d) for d in docs]
    for codec in ("gz", "bz2", "xz", "zst"):
        (folder / codec).mkdir()
        (folder / codec / f"a.jsonl.{codec}").write_bytes(_packed(codec, "\n".join(clean).encode()))
    rows = [{**d, "text": d["text"] if isinstance(d["text"], str) else None} for d in docs]
    table = pa.Table.from_pylist(rows)
    (folder / "parquet").mkdir()
    pq.write_table(table, folder / "parquet" / "a.parquet", row_group_size=400)
    (folder / "arrow").mkdir()
    with pa.ipc.new_file(folder / "arrow" / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=300)
    rng = random.Random(4)
    vectors = [[rng.gauss(0, 1) for _ in range(32)] for _ in range(300)]
    vectors += [[x + rng.gauss(0, 0.01) for x in vectors[i]] for i in range(60)]
    embedded = [{"id": f"e{i}", "text": f"text {i}", "embeddings": v} for i, v in enumerate(vectors)]
    (folder / "embeddings").mkdir()
    pq.write_table(pa.Table.from_pylist(embedded), folder / "embeddings" / "a.parquet")


def _packed(codec: str, data: bytes) -> bytes:
    import bz2
    import gzip
    import lzma

    import zstandard

    packers: dict[str, Callable[[bytes], bytes]] = {
        "gz": lambda d: gzip.compress(d, mtime=0),
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": zstandard.ZstdCompressor().compress,
    }
    return packers[codec](data)


def _make_images(folder: Path) -> None:
    import io

    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(3)
    (folder / "images").mkdir()
    with tarfile.open(folder / "images" / "00000.tar", "w") as tar:
        for i in range(30):
            size = (48, 48) if i % 7 == 0 else (160 + i, 120)
            noise = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            image = Image.fromarray(noise).resize(size) if i % 5 else Image.new("RGB", (200, 150), (9, 99, 199))
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=90)
            data = buffer.getvalue()[: 40 if i == 11 else None]
            for name, content in ((f"{i:04d}.jpg", data), (f"{i:04d}.txt", f"caption {i}".encode())):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def _make_videos(folder: Path) -> None:
    import av
    import numpy as np

    (folder / "videos").mkdir()
    for k in range(2):
        with av.open(str(folder / "videos" / f"{k}.mp4"), "w") as container:
            stream: Any = container.add_stream("mpeg4", rate=10)
            stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
            for i in range(120):
                frame = np.full((64, 96, 3), (i * 2 + k * 40) % 255, np.uint8)
                frame[10:30, (i % 60) : (i % 60) + 20] = 255
                for packet in stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)


def _make_model(folder: Path) -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    torch.manual_seed(1)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(_WORDS)]
    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=64, **names).save_pretrained(folder / "model")
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=3,
    )
    BertForSequenceClassification(config).save_pretrained(folder / "model")


def make_inputs() -> Path:
    folder = WORK / "inputs"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for make in (_make_text, _make_images, _make_videos, _make_model):
            make(folder)
        (folder / "complete").touch()
    return folder


# -- jobs -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Job:
    """A command; {in} and {out} stand for the folders of inputs and outputs.

    `kills`: so often it is killed and run again.
    """

    name: str
    arguments: tuple[str, ...]
    recipe: str = ""
    kills: int = 0
    settings: tuple[str, ...] = MEMORY
    optional: str = ""  # a module that it needs
    first: tuple[str, ...] = field(default=())  # a command to run before it


def _recipe(*stages: str) -> str:
    return "stages:\n" + "\n".join(f"  - {s}" for s in stages) + "\n"


def jobs() -> list[Job]:
    """Every kind of job, each with small input."""
    found = [Job(f"filter {s}", ("filter", s, "{in}/jsonl", "{out}")) for s in ("gopher", "c4", "fineweb", "gopher+c4")]
    found += [
        Job(f"run {name}", ("run", name, "--set", "input={in}/jsonl", "--set", "output={out}"))
        for name in ("copy", "heuristic_english", "heuristic_non_english", "to_parquet")
    ]
    found += [
        Job(f"copy {kind}", ("filter", "fineweb", f"{{in}}/{kind}", "{out}")) for kind in ("gz", "bz2", "xz", "zst")
    ]
    found += [Job(f"filter {kind}", ("filter", "gopher", f"{{in}}/{kind}", "{out}")) for kind in ("parquet", "arrow")]
    found += [
        Job(f"dedup exact {kind}", ("dedup", "exact", f"{{in}}/{kind}", "{out}"))
        for kind in ("jsonl", "parquet", "zst")
    ]
    found += [
        Job(f"dedup fuzzy {kind}", ("dedup", "fuzzy", f"{{in}}/{kind}", "{out}")) for kind in ("jsonl", "parquet", "gz")
    ]
    found += [
        Job("dedup exact normalized", ("dedup", "exact", "{in}/jsonl", "{out}", "--normalize", "casefold")),
        Job("dedup exact find only", ("dedup", "exact", "{in}/jsonl", "{out}", "--find-only")),
        Job("dedup fuzzy bands", ("dedup", "fuzzy", "{in}/jsonl", "{out}", "--bands-per-iteration", "5")),
        Job("dedup lines", ("dedup", "lines", "{in}/jsonl", "{out}")),
        Job("dedup lines paragraphs", ("dedup", "lines", "{in}/jsonl", "{out}", "--unit", "paragraph")),
        Job("dedup substrings", ("dedup", "substrings", "{in}/jsonl", "{out}", "--min-bytes", "60")),
        Job("dedup semantic", ("dedup", "semantic", "{in}/embeddings", "{out}", "--eps", "0.05", "--clusters", "6")),
        Job("curate minimal", ("curate", "{in}/jsonl", "{out}", "--preset", "minimal", "--no-card")),
        Job("curate books", ("curate", "{in}/jsonl", "{out}", "--preset", "books", "--no-card")),
        Job("curate code", ("curate", "{in}/jsonl", "{out}", "--preset", "code", "--no-card")),
        Job("curate parquet", ("curate", "{in}/parquet", "{out}", "--preset", "books", "--no-card")),
        Job(
            "curate packed",
            (
                "curate",
                "{in}/jsonl",
                "{out}",
                "--preset",
                "minimal",
                "--no-card",
                "--format",
                "jsonl.zst",
                "--shard-size",
                "200kB",
                "--split",
                "train=90,validation=10",
                "--shuffle",
                "7",
            ),
        ),
        Job(
            "small budget",
            ("curate", "{in}/jsonl", "{out}", "--preset", "books", "--no-card"),
            settings=("--memory", "300MB"),
        ),
        Job("small blocks", ("dedup", "fuzzy", "{in}/jsonl", "{out}"), settings=(*MEMORY, "--workers", "1")),
        Job("kills filter", ("filter", "gopher", "{in}/jsonl", "{out}"), kills=4),
        Job("kills dedup", ("dedup", "fuzzy", "{in}/jsonl", "{out}"), kills=5),
        Job("kills curate", ("curate", "{in}/jsonl", "{out}", "--preset", "books", "--no-card"), kills=6),
        Job("images", ("images", "{in}/images", "{out}"), optional="PIL"),
        Job("video", ("video", "{in}/videos", "{out}", "--clip-seconds", "4"), optional="av"),
        Job("classify", ("classify", "{in}/model", "{in}/jsonl", "{out}"), optional="torch"),
        Job("refused budget", ("filter", "gopher", "{in}/jsonl", "{out}"), settings=("--memory", "20MB")),
        Job("no input", ("filter", "gopher", "{in}/nothing", "{out}")),
    ]
    return found


# -- what a job left --------------------------------------------------------------------------------------------------
def _records(path: Path) -> Iterator[str]:
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    elif path.suffix == ".arrow":
        with pa.ipc.open_file(path) as reader:
            rows = reader.read_all().to_pylist()
    elif path.suffix == ".tar":
        with tarfile.open(path) as tar:
            for member in tar:
                data = tar.extractfile(member)
                yield f"{member.name} {hashlib.blake2b(data.read() if data else b'').hexdigest()[:32]}"
        return
    else:
        yield hashlib.blake2b(path.read_bytes()).hexdigest()[:32]
        return
    for row in rows:
        yield json.dumps(row, default=str, sort_keys=True)


def contents(output: Path) -> dict[str, str]:
    """Return a hash for each file of an output, and for its quarantined records.

    The parts of an output are hashed one after the other: versions may cut the same documents in other places.
    """
    digests: dict[str, Any] = {}
    for path in sorted(p for p in output.rglob("*") if p.is_file() and "_tamis" not in p.parts):
        name = re.sub(r"part-[0-9r.-]*\.", "part-*.", str(path.relative_to(output)))
        digest = digests.setdefault(name, hashlib.blake2b(digest_size=12))
        for record in _records(path):
            digest.update(record.encode("utf-8", "surrogatepass") + b"\n")
    found = {name: digest.hexdigest() for name, digest in digests.items()}
    quarantined = []
    for path in chain(
        output.glob("_tamis/quarantine/*.jsonl"), output.parent.glob(f"{output.name}.tamis/quarantine/*.jsonl")
    ):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            quarantined.append((os.path.basename(entry["file"]), entry["offset"], entry["n"], entry.get("raw", "")))
    found["quarantine"] = hashlib.blake2b(repr(sorted(quarantined)).encode()).hexdigest()[:24]
    return found


def facts(printed: str) -> Any:
    """Return what a command printed as JSON, without what differs from run to run."""
    start = printed.find("{")
    return _steady(json.loads(printed[start:])) if start >= 0 else None


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {k: _steady(v) for k, v in value.items() if not any(word in k for word in _VOLATILE)}
        if isinstance(kept.get("message"), str):
            kept["message"] = re.sub(r"[0-9][0-9.,]*", "N", kept["message"])  # measured figures
        return {k: v for k, v in kept.items() if not isinstance(v, str) or "/" not in v}
    return [_steady(v) for v in value] if isinstance(value, list) else value


@dataclass
class Outcome:
    exit_code: int
    files: dict[str, str]
    printed: Any
    cpu_s: float
    message: str = ""

    def differences(self, other: Outcome) -> list[Difference]:
        """Return how another outcome differs from this one, accepted changes included."""
        found = []
        if self.exit_code != other.exit_code:
            message = other.message or self.message
            found.append(Difference("exit code", f"{self.exit_code} -> {other.exit_code} ({message})"))
        for name in sorted({*self.files, *other.files}):
            if self.files.get(name) != other.files.get(name):
                found.append(Difference(f"file {name}", f"{self.files.get(name)} -> {other.files.get(name)}"))
        return [*found, *_changes(self.printed, other.printed)]


@dataclass(frozen=True)
class Difference:
    """`place`: a file, or the keys that lead to a printed value; `change`: what was there, and what is there now."""

    place: str
    change: str

    def accepted(self, job: str) -> Accepted | None:
        """Return the entry of `ACCEPTED` that explains this difference in the outcome of a job, if there is one."""
        return next((entry for entry in ACCEPTED if entry.explains(job, self.place, self.change)), None)


def _changes(old: Any, new: Any, where: str = "") -> Iterator[Difference]:
    """Yield the differences of two JSON values; fields that one side lacks count, as do values of renamed fields."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            place = f"{where}.{key}".lstrip(".")
            if key in old and key in new:
                yield from _changes(old[key], new[key], place)
            elif key in new:
                yield Difference(place, f"new, {json.dumps(new[key])[:100]}")
            else:
                yield Difference(place, f"gone, was {json.dumps(old[key])[:100]}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _changes(one, other, f"{where}[{i}]")
    elif old != new:
        yield Difference(where or "printed", f"{json.dumps(old)[:300]} -> {json.dumps(new)[:300]}")


def run(job: Job, side: Side, inputs: Path) -> Outcome:
    output = WORK / "outputs" / side.name / job.name.replace(" ", "-")
    shutil.rmtree(output, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    arguments = [a.replace("{in}", str(inputs)).replace("{out}", str(output)) for a in job.arguments]
    command = side.command(*arguments, *job.settings, "--json")
    rng = random.Random(job.name)
    for _ in range(job.kills):
        process = subprocess.Popen(
            command,
            env=side.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(rng.uniform(0.3, 1.5))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=side.environment(), capture_output=True, text=True, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    printed = None if job.kills else facts(done.stdout)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return Outcome(done.returncode, contents(output) if output.exists() else {}, printed, cpu_s, last)


def has_module(name: str) -> bool:
    import importlib.util

    return not name or importlib.util.find_spec(name) is not None


def compare(base: Side, head: Side, chosen: list[Job], inputs: Path) -> int:
    n_different, explained = 0, dict.fromkeys(ACCEPTED, 0)
    for job in chosen:
        before, after = run(job, base, inputs), run(job, head, inputs)
        unexplained = []
        for difference in before.differences(after):
            if (entry := difference.accepted(job.name)) is None:
                unexplained.append(difference)
            else:
                explained[entry] += 1
        n_different += bool(unexplained)
        verdict = "DIFFERENT" if unexplained else "same"
        print(f"{job.name:28s} {verdict:10s} exit {after.exit_code}  {len(after.files)} files", flush=True)
        for difference in unexplained[:20]:
            print(f"    {difference.place}: {difference.change}")
    print(f"{len(chosen)} jobs, {n_different} different")
    for entry, n in explained.items():
        if n:
            of_jobs = f" of {' and '.join(entry.jobs)}" if entry.jobs else ""
            print(f"accepted {n:3d} times: {entry.place}{of_jobs}: {entry.reason}")
    return n_different


def compare_speed(base: Side, head: Side, chosen: list[Job], inputs: Path, n_pairs: int) -> None:
    """Print the ratio of CPU seconds, head to baseline, from runs in turn; the best of each side counts.

    Jobs that end with another exit code than in the baseline, which lacks what they use, have no ratio.
    """
    ratios = []
    for job in chosen:
        taken: dict[str, list[float]] = {base.name: [], head.name: []}
        exit_codes: dict[str, int] = {}
        for _ in range(n_pairs):
            for side in (base, head):
                outcome = run(job, side, inputs)
                taken[side.name].append(outcome.cpu_s)
                exit_codes[side.name] = outcome.exit_code
            if exit_codes[base.name] != exit_codes[head.name]:
                break
        if exit_codes[base.name] != exit_codes[head.name]:
            print(f"{job.name:28s} no ratio: exit {exit_codes[base.name]}, now {exit_codes[head.name]}", flush=True)
            continue
        ratio = min(taken[head.name]) / max(1e-9, min(taken[base.name]))
        ratios.append(ratio)
        figures = f"{min(taken[base.name]):7.2f} s {min(taken[head.name]):7.2f} s  {ratio:.3f}"
        print(f"{job.name:28s} {figures}", flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    starts: dict[str, float] = {}
    for side in (base, head) * n_pairs:
        began = time.perf_counter()
        subprocess.run(side.command("--version"), env=side.environment(), stdout=subprocess.DEVNULL, check=True)
        starts[side.name] = min(starts.get(side.name, 1e9), time.perf_counter() - began)
    print(
        f"geometric mean {mean:.3f}, worst {max(ratios):.3f}; start {starts[base.name] * 1e3:.0f} -> "
        f"{starts[head.name] * 1e3:.0f} ms"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", default="HEAD~1", help="the commit to compare with (default: %(default)s)")
    parser.add_argument("--only", default="", help="only jobs whose name contains this")
    parser.add_argument("--pairs", type=int, default=0, help="compare CPU seconds in so many pairs of runs")
    options = parser.parse_args()
    revision = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", options.base], capture_output=True, text=True, check=True
    ).stdout.strip()
    base, head = install("base", revision), install("head", None)
    inputs = make_inputs()
    chosen = [job for job in jobs() if options.only in job.name and has_module(job.optional)]
    n_different = compare(base, head, chosen, inputs)
    if options.pairs:
        compare_speed(base, head, [job for job in chosen if not job.kills], inputs, options.pairs)
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())
