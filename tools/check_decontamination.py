"""Check the certificate of a decontamination by scanning the output: `python tools/check_decontamination.py OUTPUT`.

Independent of Tamis: its own reading, its own normalisation, no hashes, only Python, Unicode data and pyarrow. All
n-grams of the evaluation sets are held in memory, so it is for outputs and sets of a size that allows that.

Exit code 0: no document of the output is contaminated by the rules of the certificate. 1: some are, and are listed. 2:
the certificate does not fit the evaluation sets, or cannot be read.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

USUAL = ("question", "problem", "prompt", "text", "query", "instruction", "input", "goal", "sentence")
WORD = 4  # the weight of a word


def spans(text: str) -> list[tuple[int, int]]:
    return [(int(a, 16), int(b or a, 16)) for a, _, b in (part.partition("-") for part in text.split())]


SKIPPED = spans(
    "300-36f 483-487 591-5c7 610-61a 64b-65f 670 6d6-6ed 1ab0-1aff 1dc0-1dff 20d0-20ff fe20-fe2f "
    "ad 34f 61c 180e 200b-200f 202a-202e 2060-206f fe00-fe0f feff e0100-e01ef"
)
HALF = spans(
    "2e80-2fff 3005-3007 3021-302f 3031-3035 3038-30ff 31a0-31ff 3400-4dbf 4e00-a4cf f900-faff 1aff0-1b2ff 20000-3ffff"
)
QUARTER = spans("e00-109f 1780-17ff 1950-19df 1a20-1aaf a9e0-a9ff aa60-aadf")


def inside(c: str, ranges: list[tuple[int, int]]) -> bool:
    return any(a <= ord(c) <= b for a, b in ranges)


class Letters(dict[str, tuple[str, int]]):
    """The letters a character stands for and the weight of each as a token (0: part of a word); None to skip it."""

    def __missing__(self, c: str) -> Any:
        plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", c).casefold())
        kept = [d for d in plain if (d.isalnum() or unicodedata.category(d)[0] == "M") and not inside(d, SKIPPED)]
        weight = 0 if not kept else 2 if inside(kept[0], HALF) else 1 if inside(kept[0], QUARTER) else 0
        self[c] = ("", -1) if inside(c, SKIPPED) else ("".join(kept[:7]), weight)
        return self[c]


LETTERS = Letters()


def tokens(text: str) -> list[tuple[str, int]]:
    """Return the words of a text, and single characters of scripts without spaces, each with its weight."""
    found: list[tuple[str, int]] = []
    word: list[str] = []
    for c in [*text, " "]:
        letters, weight = LETTERS[c]
        if weight < 0:
            continue
        if letters and not weight:
            word.append(letters)
            continue
        if word:
            found.append(("".join(word), WORD))
            word = []
        found += [(letter, weight) for letter in letters]
    return found


def windows(found: list[tuple[str, int]], weight: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (first token, words) of every n-gram that weighs at least so much."""
    end = total = 0
    for first in range(len(found)):
        while total < weight and end < len(found):
            total += found[end][1]
            end += 1
        if total < weight:
            return
        yield first, tuple(word for word, _ in found[first:end])
        total -= found[first][1]


def records(path: Path) -> Iterator[dict[str, Any]]:
    name = path.name.lower()
    if name.endswith(".parquet"):
        for batch in pq.ParquetFile(path).iter_batches(1000):
            yield from batch.to_pylist()
    elif name.endswith((".arrow", ".feather")):
        with pa.OSFile(str(path)) as source:
            try:
                yield from pa.ipc.open_file(source).read_all().to_pylist()
            except pa.ArrowInvalid:
                source.seek(0)
                yield from pa.ipc.open_stream(source).read_all().to_pylist()
    else:
        data = path.read_bytes()
        if path.suffix.lower() == ".gz":
            data = gzip.decompress(data)
        elif path.suffix.lower() in (".zst", ".bz2"):
            data = pa.CompressedInputStream(
                pa.BufferReader(data), {".zst": "zstd"}.get(path.suffix.lower(), "bz2")
            ).read()
        if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            yield from json.loads(data)
        else:
            yield from (json.loads(line) for line in data.splitlines() if line.strip())


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


def item_text(record: dict[str, Any], fields: list[str]) -> str:
    texts: list[str] = []
    for name in fields:
        value: Any = record
        if name in record:
            value = record[name]
        else:
            for part in name.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        texts += strings(value)
    return "\n".join(texts)


class Evaluation:
    """The n-grams of the items, as tuples of words, and the short items as wholes."""

    def __init__(self, certificate: dict[str, Any], excepted: set[tuple[str, ...]]) -> None:
        self.weight, self.short = WORD * certificate["words"], WORD * certificate["short_words"]
        self.ngrams: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
        self.wholes: dict[tuple[str, ...], list[tuple[int, tuple[str, ...]]]] = defaultdict(list)
        self.names: list[str] = []
        self.sizes: list[int] = []
        self.excepted = excepted
        for one in certificate["sets"]:
            for file in one["files"]:
                self._add(one, file)

    def _add(self, one: dict[str, Any], file: dict[str, Any]) -> None:
        fields: list[str] = one["fields"]
        for row, record in enumerate(records(Path(file["path"]))):
            fields = fields or [next(name for name in USUAL if name in record)]
            found = tokens(item_text(record, fields))
            item = len(self.names)
            self.names.append(f"{one['name']} {Path(file['path']).name}:{row}")
            grams = list(windows(found, self.weight))
            self.sizes.append(len(grams))
            for first, gram in grams:
                self.ngrams[gram].append((item, first))
            if not grams and self.short and sum(w for _, w in found) >= self.short:
                words = tuple(word for word, _ in found)
                self.wholes[next(windows(found, self.short))[1]].append((item, words))

    def contaminations(self, text: str, min_words: int, min_share: float) -> Iterator[str]:
        """Yield what contaminates a text."""
        found = tokens(text)
        words = tuple(word for word, _ in found)
        matched: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
        for first, gram in windows(found, self.weight):
            if gram in self.ngrams and gram not in self.excepted:
                for item, place in self.ngrams[gram]:
                    matched[item].add((first, place, len(gram)))
        for item, pairs in matched.items():
            share = len({place for _, place, _ in pairs}) / self.sizes[item]
            length: dict[tuple[int, int], int] = {}
            longest = 0
            for first, place, size in sorted(pairs):
                start = length.get((first - 1, place - 1), first)
                length[first, place] = start
                longest = max(longest, first + size - start)
            if longest >= min_words and share >= min_share:
                yield f"{self.names[item]}: a run of {longest} words, {share:.1%} of its n-grams"
        for first, gram in windows(found, self.short) if self.wholes else ():
            for item, whole in self.wholes.get(gram, ()):
                if words[first : first + len(whole)] == whole and whole not in self.excepted:
                    yield f"{self.names[item]}: the whole item"


def check_files(certificate: dict[str, Any]) -> list[str]:
    """Return what has changed in the evaluation sets since."""
    return [
        f"{file['path']} is not the file that the certificate is about"
        for one in certificate["sets"]
        for file in one["files"]
        if not Path(file["path"]).is_file()
        or hashlib.sha256(Path(file["path"]).read_bytes()).hexdigest() != file["sha256"]
    ]


def output_files(output: Path) -> Iterable[Path]:
    endings = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".jsonl.bz2", ".parquet", ".arrow")
    return sorted(p for p in output.rglob("*") if "_tamis" not in p.parts and p.name.lower().endswith(endings))


def run_dirs(output: Path) -> list[Path]:
    """Return where the run directory of an output may be: inside, or next to it."""
    return [output / "_tamis", output.resolve().with_name(f"{output.resolve().name}.tamis")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="the folder that a decontamination wrote")
    parser.add_argument("--certificate", type=Path, help="default: the one that the run of OUTPUT left")
    options = parser.parse_args()
    found = sorted(
        path for folder in run_dirs(options.output) for path in (folder / "duplicates").glob("*decontamination.json")
    )
    path = options.certificate or (found[0] if found else None)
    if path is None:
        print(f"{options.output} has no certificate; give --certificate", file=sys.stderr)
        return 2
    certificate = json.loads(path.read_text())
    listed = path.parent / (path.name.removesuffix("decontamination.json") + certificate["excepted"]["file"])
    problems = check_files(certificate)
    if hashlib.sha256(listed.read_bytes()).hexdigest() != certificate["excepted"]["sha256"]:
        problems.append(f"{listed} is not the list that the certificate is about")
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 2
    excepted = {tuple(json.loads(line)["words"].split(" ")) for line in listed.read_text().splitlines()}
    evaluation = Evaluation(certificate, excepted)
    n_documents = n_contaminated = 0
    for file in output_files(options.output):
        for row, record in enumerate(records(file)):
            n_documents += 1
            text = record.get(certificate["text_field"]) or ""
            for overlap in evaluation.contaminations(text, certificate["min_words"], certificate["min_share"]):
                n_contaminated += 1
                print(f"{file}, document {row}: {overlap}")
                break
    print(f"{n_documents:,} documents, {n_contaminated:,} contaminated, {len(evaluation.names):,} items checked")
    return 1 if n_contaminated else 0


if __name__ == "__main__":
    sys.exit(main())
