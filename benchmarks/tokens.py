"""Token ids: MB/s beside the libraries `tokenizers` and `tiktoken`, on the same text, in one run.

`make bench-tokens`, or `python benchmarks/tokens.py [--quick]`; `--only PART` for one part, `--only large` for 10 GB.
Each part takes minutes on an idle machine; vocabularies, which take most of it, are trained once and kept in
bench-data/vocabularies.

Documents are those of data.py. Vocabularies of 32k, 128k and 200k tokens are trained on a quarter of them by the
library (200k: on all), with the expressions of GPT-2, Llama 3, Qwen 2 and o200k, and as that of Llama 2; each is a part
(`--only "GPT-2"`). Each is encoded by the kernels (half of the documents), and by the library with one thread,
with all, and by tiktoken (2 MB): best of three rounds that take turns; the first round of the kernels, with empty
caches, is told apart. MB are of UTF-8, seconds are of the CPU (of the clock where all threads run). Ids of those 2 MB
are compared. "cores" runs one process for each core, and the library's threads. Then `tamis tokenize` runs as users run
it, on the documents once, ten times and (`--only large`) a hundred times over: its peak and its speed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy as np
import pyarrow as pa

import data
from figures import ROWS, exit_code, note, put_rows, table, write_page
from measuring import TAMIS, measure
from tamis.stages.text.tokens import patterns
from tamis.stages.text.tokens.tokenizer import of_json
from tamis.stages.text.tokens.vocabulary import byte_chars

PAGE = "benchmarks-tokens.md"
KINDS = (
    ("GPT-2", patterns.GPT2, 32_000, {}),
    ("Llama 2", "", 32_000, {}),
    ("Llama 3", patterns.CL100K, 128_000, {"ignore_merges": True}),
    ("Qwen 2", patterns.QWEN2, 128_000, {"nfc": True}),
    ("o200k", patterns.O200K, 200_000, {}),
)
SPECIAL = "<|endoftext|>"
SAMPLE_BYTES = 2_000_000  # of the libraries, which take minutes for all documents
GOAL = 10.0  # times the library's speed on a core
AIM_MB_S = 100.0


def documents() -> list[str]:
    return [json.loads(line)["text"] for part in data.base() for line in part.read_bytes().splitlines()]


def batches(texts: list[str], n_bytes: int = 8 << 20) -> list[pa.Array]:
    """Arrow columns of some MB, as stages get them."""
    found: list[pa.Array] = []
    part: list[str] = []
    size = 0
    for text in texts:
        part.append(text)
        size += len(text.encode())
        if size >= n_bytes:
            found.append(pa.array(part, pa.large_string()))
            part, size = [], 0
    return [*found, pa.array(part, pa.large_string())]


def trained_pieces(texts: list[str], size: int) -> Any:
    """Return a BPE of SentencePiece with byte fallback, as that of Llama 2."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(byte_fallback=True, unk_token=SPECIAL, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace(prepend_scheme="never")]
    )
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=size, limit_alphabet=size // 6, special_tokens=[SPECIAL, *byte_tokens], show_progress=False,
        max_token_length=16,
    )  # fmt: skip
    made.train_from_iterator(texts, trainer)
    parts = json.loads(made.to_str())
    parts["added_tokens"] = parts["added_tokens"][:1]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    parts["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]}
    parts["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(parts))


def trained(texts: list[str], expression: str, size: int, options: dict[str, Any]) -> Any:
    if not expression:
        return trained_pieces(texts, size)
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(ignore_merges=options.get("ignore_merges", False)))
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    if options.get("nfc"):
        made.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=[SPECIAL], show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    return made


def vocabulary_of(name: str, texts: list[str], quick: bool) -> Any:
    """Return the library's tokenizer of a kind, trained once."""
    from tokenizers import Tokenizer

    _, expression, size, options = next(kind for kind in KINDS if kind[0] == name)
    if quick:
        return trained(texts[:2000], expression, size, options)
    path = data.DATA / f"vocabularies/{name}-{size}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        trained(texts if size > 150_000 else texts[::4], expression, size, options).save(str(path) + ".tmp")
        os.rename(str(path) + ".tmp", path)
    return Tokenizer.from_file(str(path))


def tiktoken_of(library: Any, expression: str) -> Any:
    """Return tiktoken's encoding of the same tokens, ranked by their ids: its speed, not its ids, is comparable."""
    import tiktoken

    byte_of = {ord(char): byte for byte, char in enumerate(byte_chars())}
    tokens = sorted((i, t) for t, i in library.get_vocab(with_added_tokens=False).items() if t != SPECIAL)
    ranks = {bytes(byte_of[ord(c)] for c in token): rank for rank, (_, token) in enumerate(tokens)}
    return tiktoken.Encoding("bench", pat_str=expression, mergeable_ranks=ranks, special_tokens={})


def speeds(parts: dict[str, tuple[float, Callable[[], Any], bool]], rounds: int) -> dict[str, float]:
    """Return MB/s by name, the best of some rounds in which the parts take turns. A part: (MB, call, by the clock)."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, (mb, call, by_clock) in parts.items():
            clock = time.perf_counter if by_clock else time.process_time
            began = clock()
            call()
            best[name] = max(best.get(name, 0.0), mb / (clock() - began))
    return best


def kernels(own: Any, columns: list[pa.Array]) -> None:
    for column in columns:
        own.encode(column)


def by_library(library: Any, texts: list[str], in_parallel: str) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = in_parallel
    library.encode_batch_fast(texts, add_special_tokens=False)


def by_tiktoken(encoding: Any, texts: list[str]) -> None:
    for text in texts:
        encoding.encode_ordinary(text)


def compare(kind: str, quick: bool) -> None:
    texts = documents()
    columns = batches(texts[: len(texts) // 8] if quick else texts[::2])
    mb = sum(column.nbytes for column in columns) / 1e6
    some, size = [], 0
    for text in texts[::3]:
        some.append(text)
        size += len(text.encode())
        if size >= (SAMPLE_BYTES // 8 if quick else SAMPLE_BYTES):
            break
    some_mb = size / 1e6
    for name, expression, _, _ in [one for one in KINDS if one[0] == kind]:
        library = vocabulary_of(name, texts, quick)
        own, reason = of_json(library.to_str())
        assert not reason, reason
        parts: dict[str, tuple[float, Callable[[], Any], bool]] = {
            "kernels": (mb, partial(kernels, own, columns), False),
            "library": (some_mb, partial(by_library, library, some, "false"), False),
            "library, all": (some_mb, partial(by_library, library, some, "true"), True),
        }
        if expression:
            parts["tiktoken"] = some_mb, partial(by_tiktoken, tiktoken_of(library, expression), some), False
        first = speeds({"kernels": parts["kernels"]}, 1)["kernels"]
        found = speeds(parts, 1 if quick else 3)
        size_name = f"{library.get_vocab_size():,} tokens"
        note(name, f"{size_name}: kernels, one core", f"{found['kernels']:.0f} MB/s", found["kernels"] >= AIM_MB_S)
        note(name, f"{size_name}: kernels, one core, with empty caches", f"{first:.0f} MB/s")
        note(name, f"{size_name}: tokenizers, one thread", f"{found['library']:.1f} MB/s")
        note(name, f"{size_name}: tokenizers, {os.cpu_count()} threads, clock", f"{found['library, all']:.1f} MB/s")
        if expression:
            note(name, f"{size_name}: tiktoken, one thread", f"{found['tiktoken']:.1f} MB/s")
        times = found["kernels"] / found["library"]
        note(name, f"{size_name}: kernels against tokenizers, per core", f"{times:.0f} times", times >= GOAL)
        n_different = different(own, library, some)
        note(name, f"{size_name}: documents with other ids, of {len(some):,}", f"{n_different}", n_different == 0)
        del library, own, parts


def cores(quick: bool) -> None:
    """Encode with as many processes as there are cores, each all of the documents, and with the library's threads."""
    import multiprocessing

    texts = documents()[:: 32 if quick else 4]
    columns = batches(texts)
    mb = sum(column.nbytes for column in columns) / 1e6
    library = vocabulary_of("Llama 3", documents(), quick)
    own, _ = of_json(library.to_str())
    n_cores, context = os.cpu_count() or 1, multiprocessing.get_context("fork")

    def encode_all(barrier: Any, n_rounds: int) -> None:
        kernels(own, columns[:1])
        barrier.wait()
        for _ in range(n_rounds):
            kernels(own, columns)
        barrier.wait()

    n_rounds, speed = 1 if quick else 6, {}
    for n in dict.fromkeys((1, n_cores)):
        barrier = context.Barrier(n + 1)
        workers = [context.Process(target=encode_all, args=(barrier, n_rounds)) for _ in range(n)]
        for worker in workers:
            worker.start()
        barrier.wait()
        began = time.perf_counter()
        barrier.wait()
        speed[n] = n_rounds * n * mb / (time.perf_counter() - began)
        for worker in workers:
            worker.join()
        note("cores", f"Llama 3, 128,000 tokens: {n} processes of {n_cores} cores, clock", f"{speed[n]:.0f} MB/s")
    some = texts[::8]
    began = time.perf_counter()
    by_library(library, some, "true")
    threads = sum(len(text.encode()) for text in some) / 1e6 / (time.perf_counter() - began)
    note("cores", f"Llama 3, 128,000 tokens: tokenizers, {n_cores} threads, clock", f"{threads:.1f} MB/s")
    times = speed[n_cores] / threads
    note("cores", "Llama 3, 128,000 tokens: kernels against tokenizers, all cores", f"{times:.0f} times", times >= GOAL)


def different(own: Any, library: Any, texts: list[str]) -> int:
    found = own.encode(pa.array(texts, pa.large_string()))
    expected = library.encode_batch_fast(texts, add_special_tokens=False)
    return sum(
        not np.array_equal(found.ids[a:b], one.ids)
        for a, b, one in zip(found.offsets[:-1], found.offsets[1:], expected, strict=True)
    )


def command(quick: bool, numbers: tuple[int, ...] = (1, 10), plain_only: bool = False) -> None:
    work = data.HERE.parent / "bench-data/tokens"
    shutil.rmtree(work, ignore_errors=True)
    (work / "tok").mkdir(parents=True)
    texts = documents()
    library = trained(texts[:4000], patterns.CL100K, 32_000 if quick else 128_000, {})
    library.save(str(work / "tok/tokenizer.json"))
    (work / "tok/tokenizer_config.json").write_text(json.dumps({"eos_token": SPECIAL}))
    for copies in (1,) if quick else numbers:
        (work / f"in{copies}").mkdir()
        for k in range(copies):
            for part in data.base():
                os.link(part, work / f"in{copies}" / f"{k}-{part.name}")
        n_bytes = sum(p.stat().st_size for p in (work / f"in{copies}").iterdir())
        for what, options in (
            ("npy", ["--format", "npy"]),
            ("sequences of 4,096, shuffled", ["--format", "npy", "--sequence-length", "4096", "--shuffle", "1"]),
        )[: 1 if plain_only else 2]:
            out = work / "out"
            shutil.rmtree(out, ignore_errors=True)
            command = [TAMIS, "tokenize", str(work / f"in{copies}"), str(out), "--tokenizer", str(work / "tok")]
            run = measure([*command, "--memory", "512MB", "--workers", "2", "--json", *options], timeout_s=7200)
            assert run["rc"] == 0, run["said"]
            title = f"tamis tokenize, {n_bytes / 1e6:,.0f} MB of JSONL, {what}"
            speed = n_bytes / 1e6 / run["wall_s"]
            part = "large" if plain_only else "command"
            note(part, f"{title}: wall time", f"{run['wall_s']:.1f} s, {speed:.0f} MB/s")
            note(part, f"{title}: MB for each second of the CPU", f"{n_bytes / 1e6 / run['cpu_s']:.0f} MB/s")
            peak_mb = run["peak_pss_mb"]
            note(part, f"{title}: peak PSS, budget 512 MB", f"{peak_mb:.0f} MB", peak_mb <= 512)
    shutil.rmtree(work, ignore_errors=True)


def large(quick: bool) -> None:
    """Tokenize 10 GB: not a part of `make bench-tokens`, as it needs minutes to hours and 15 GB of disk."""
    command(quick, (100,), plain_only=True)


PARTS: dict[str, Callable[[bool], None]] = {kind[0]: partial(compare, kind[0]) for kind in KINDS}
PARTS |= {"cores": cores, "command": command}
MORE = {"large": large}


LOAD = os.getloadavg()[0]


def write() -> None:
    about = (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip().split("\n")
    machine = f"on {os.cpu_count()} cores with a load average of {LOAD:.1f} when it began"
    head = ["# Figures of tokenizing", "", f"Written by `make bench-tokens`, {machine}.", ""]
    write_page(PAGE, [*head, *about, "", *table(ROWS)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less text and one round; writes no page")
    parser.add_argument("--only", choices=sorted(PARTS | MORE), help="one part, whose rows of the page are replaced")
    given = parser.parse_args()
    for part in [given.only] if given.only else PARTS:
        (PARTS | MORE)[part](given.quick)
    if given.only and not given.quick:
        for part in dict.fromkeys(row[0] for row in ROWS):
            put_rows(PAGE, [row for row in ROWS if row[0] == part])
    elif not given.quick:
        write()
    return exit_code()


if __name__ == "__main__":
    sys.exit(main())
