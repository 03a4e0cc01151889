"""The demo corpus: real text in every format, with planted faults whose exact number is known.

`gather` writes <folder>/corpus/ (the data) and <folder>/planted.json (the truth about it). The same seed on the same
machine gives the same bytes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tamis import files
from tamis.demo.corpus_files import CorpusFile, DamagedGzipFile, JsonlCorpusFile, ParquetCorpusFile
from tamis.demo.local_text import LocalText, local_texts
from tamis.errors import FormatError, RunConflict, TamisError, UsageError

DEFAULT_BYTES = 300_000_000
# (file, share of the corpus). The last file is plain JSONL, so that whatever is still to be planted finds a place.
LAYOUT = (
    ("part-00.jsonl", 0.24),
    ("part-01.jsonl.gz", 0.10),
    ("part-02.parquet", 0.12),
    ("part-03.jsonl.zst", 0.20),
    ("part-04-damaged.jsonl.gz", 0.02),
    ("part-05.jsonl", 0.16),
    ("part-06-empty.jsonl", 0.0),
    ("part-07.jsonl", 0.16),
)
# How many of each kind are planted into 300 MB; other sizes in proportion, but at least MIN_PLANTED.
PER_DEFAULT = {
    "broken_json": 40,
    "invalid_utf8": 25,
    "not_an_object": 15,
    "blank_line": 60,
    "null_text": 30,
    "non_string_text": 20,
    "missing_text": 10,
    "duplicate": 500,
    "junk": 200,
}
BAD_LINES = ("broken_json", "invalid_utf8", "not_an_object")
MIN_PLANTED = 3
_PARQUET_CAN_HOLD = ("null_text", "duplicate", "junk")
_SYMBOLS = "#$%^&*~|<>{}[]@+=_"
_N_LOST = 20
# Of the corpus: far below the limit under which a run counts as complete, whatever texts this machine has.
_LOST_SHARE = 0.005


@dataclass
class PlantedFile:
    """The truth about one file. `n_documents`: records that can be read (also those with odd or no text)."""

    name: str
    n_documents: int = 0
    n_bytes: int = 0
    planted: dict[str, int] = field(default_factory=dict)
    fault_offset: int | None = None
    """Offset at which a damaged stream breaks, in decoded bytes; all of `n_documents` precede it."""


@dataclass
class Planted:
    """The truth about a corpus."""

    seed: int
    target_bytes: int
    files: list[PlantedFile] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    n_documents: int = 0
    n_bytes: int = 0
    n_passes: int = 1
    """Passes over the files of this machine; above 1 there was less text than asked for and it was cut anew."""
    n_damaged_files: int = 0
    duplicates: list[str] = field(default_factory=list)
    """Ids of the documents that repeat the text of an earlier one."""

    @property
    def n_bad_lines(self) -> int:
        return sum(self.totals.get(kind, 0) for kind in BAD_LINES)

    def remark(self) -> str:
        """Return a sentence about repeated text, or an empty string if no text was repeated."""
        if self.n_passes == 1:
            return ""
        return (
            f"this machine holds less text than asked for: its files were used {self.n_passes} times, cut differently "
            "each time"
        )


def corpus_dir(folder: str | os.PathLike[str]) -> Path:
    return Path(folder) / "corpus"


def load(folder: str | os.PathLike[str]) -> Planted | None:
    """Load the description that `gather` wrote of the corpus in `folder`; return None if there is none."""
    try:
        plain = json.loads((Path(folder) / "planted.json").read_text(encoding="utf-8"))
        return Planted(**{**plain, "files": [PlantedFile(**file) for file in plain["files"]]})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as exc:
        raise FormatError(
            f"{folder}/planted.json was not written by this version ({exc}); remove the folder and gather again"
        ) from exc


def gather(target_dir: str | os.PathLike[str], target_bytes: int = DEFAULT_BYTES, seed: int = 42) -> Planted:
    """Write the corpus and planted.json into `target_dir`; refuses a folder that already holds a corpus."""
    if target_bytes < 200_000:
        raise UsageError(f"target_bytes: expected at least 200,000, got {target_bytes:,}")
    folder, final = Path(target_dir), corpus_dir(target_dir)
    if final.exists():
        raise RunConflict(f"{final} exists already; choose another folder or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=".corpus-", dir=folder))
    try:
        planted = _Gatherer(hidden, target_bytes, seed).run()
        files.write_text(folder / "planted.json", json.dumps(asdict(planted), indent=2) + "\n")
        hidden.chmod(0o755)
        files.move_folder(hidden, final)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return planted


class _Gatherer:
    def __init__(self, folder: Path, target_bytes: int, seed: int) -> None:
        self.folder, self.target_bytes = folder, target_bytes
        self.rng = random.Random(seed)
        self.texts = local_texts(seed)
        self.planted = Planted(seed, target_bytes)
        self.todo = self._schedule()
        self.postponed: list[str] = []
        self.originals: list[tuple[str, str]] = []
        """Some (id, text) written before, to make duplicates of."""
        self.n_ids = 0

    def _schedule(self) -> list[tuple[int, str]]:
        """Return (corpus bytes, what to plant after them), descending, so that the next is popped from the end."""
        scale = self.target_bytes / DEFAULT_BYTES
        kinds = [kind for kind, n in PER_DEFAULT.items() for _ in range(max(MIN_PLANTED, round(n * scale)))]
        # Nothing in the first percent: a duplicate needs something to duplicate.
        places = [(self.rng.randrange(self.target_bytes // 100, self.target_bytes), kind) for kind in kinds]
        return sorted(places, reverse=True)

    def run(self) -> Planted:
        planted, end = self.planted, 0.0
        for name, share in LAYOUT:
            end += share * self.target_bytes
            is_last = name == LAYOUT[-1][0]
            planted.files.append(self._write_file(name, end if share else 0.0, is_last))
        totals: Counter[str] = Counter()
        for file in planted.files:
            totals.update(file.planted)
        planted.totals = dict(totals)
        planted.n_documents = sum(file.n_documents for file in planted.files)
        planted.n_bytes = sum(file.n_bytes for file in planted.files)
        planted.n_damaged_files = sum(file.fault_offset is not None for file in planted.files)
        return planted

    def _write_file(self, name: str, end: float, is_last: bool) -> PlantedFile:
        counts: Counter[str] = Counter()
        before = self._n_bytes()
        file = PlantedFile(name)
        is_damaged = "damaged" in name
        with _sink(self.folder / name) as sink:
            while before + sink.n_bytes < end:
                self._write_text(sink)
                if not is_damaged:
                    self._plant_due(sink, before + sink.n_bytes, counts)
            if is_last:
                self._plant_due(sink, self.target_bytes, counts)
            file.n_bytes, file.n_documents, file.planted = sink.n_bytes, sink.n_documents, dict(counts)
            if isinstance(sink, DamagedGzipFile):
                file.fault_offset = sink.n_bytes
                sink.damage(self._lost_lines())
        return file

    def _lost_lines(self) -> list[bytes]:
        """Return lines that cannot be parsed: the truncated beginnings of some texts."""
        n_chars = int(_LOST_SHARE * self.target_bytes / _N_LOST)
        return [self._line(self._natural(self._next_text()))[:n_chars] for _ in range(_N_LOST)]

    def _n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.planted.files)

    def _plant_due(self, sink: CorpusFile, n_bytes: int, counts: Counter[str]) -> None:
        """Plant everything that is due; what this file cannot hold waits for the next one."""
        due, self.postponed = self.postponed, []
        while self.todo and self.todo[-1][0] <= n_bytes:
            due.append(self.todo.pop()[1])
        for kind in due:
            if isinstance(sink, ParquetCorpusFile) and kind not in _PARQUET_CAN_HOLD:
                self.postponed.append(kind)
            else:
                self._plant(kind, sink)
                counts[kind] += 1

    def _next_text(self) -> LocalText:
        text = next(self.texts, None)
        if text is None:
            raise TamisError(
                f"this machine has no more text after {self._n_bytes():,} bytes; ask for a smaller demo corpus"
            )
        self.planted.n_passes = max(self.planted.n_passes, text.copy + 1)
        return text

    def _write_text(self, sink: CorpusFile) -> None:
        record = self._natural(self._next_text())
        sink.write_document(record)
        if len(record["text"]) < 20_000:
            if len(self.originals) < 64:
                self.originals.append((record["id"], record["text"]))
            else:
                self.originals[self.rng.randrange(64)] = (record["id"], record["text"])

    def _natural(self, value: LocalText) -> dict[str, Any]:
        kind = os.path.splitext(value.source.removesuffix(".gz"))[1].lstrip(".") or "none"
        return self._record(value.text, value.source, {"kind": kind, "part": value.part, "copy": value.copy})

    def _record(self, text: object, source: str, meta: dict[str, Any]) -> dict[str, Any]:
        self.n_ids += 1
        return {"id": f"demo-{self.n_ids:07d}", "text": text, "source": source, "meta": meta}

    def _line(self, record: dict[str, Any]) -> bytes:
        return json.dumps(record, ensure_ascii=False).encode("utf-8")

    def _plant(self, kind: str, sink: CorpusFile) -> None:
        source, meta = f"planted/{kind}", {"kind": "planted", "part": 0, "copy": 0}
        if kind == "blank_line":
            sink.write_line(self.rng.choice([b"", b"   ", b"\t"]))
        elif kind in BAD_LINES:
            sink.write_line(
                self._bad_line(
                    kind, self._line(self._record(f"planted as {kind}, this line must be refused", source, meta))
                )
            )
        elif kind == "missing_text":
            record = self._record(None, source, meta)
            del record["text"]
            sink.write_document(record)
        elif kind == "duplicate":
            original, text = self.rng.choice(self.originals)
            record = self._record(text, f"{source} of {original}", meta)
            sink.write_document(record)
            self.planted.duplicates.append(record["id"])
        else:
            sink.write_document(self._record(self._odd_text(kind), source, meta))

    def _odd_text(self, kind: str) -> object:
        if kind == "junk":
            return " ".join(
                "".join(self.rng.choices(_SYMBOLS, k=self.rng.randint(2, 9))) for _ in range(self.rng.randint(50, 300))
            )
        if kind == "non_string_text":
            return self.rng.choice([42, 3.5, True, ["a", "list"], {"an": "object"}])
        assert kind == "null_text", kind
        return None

    def _bad_line(self, kind: str, line: bytes) -> bytes:
        if kind == "broken_json":
            return line[: self.rng.randint(10, len(line) - 2)]
        if kind == "invalid_utf8":
            return line.replace(b"refused", self.rng.choice([b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80"]))
        return self.rng.choice([b"[1, 2, 3]", b'"only text"', b"42", b"null", b"true"])


def _sink(path: Path) -> CorpusFile:
    if path.suffix == ".parquet":
        return ParquetCorpusFile(path)
    return DamagedGzipFile(path) if "damaged" in path.name else JsonlCorpusFile(path)
