"""The demo corpus: what planted.json says is what the files hold."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tamis.demo.corpus import Planted, corpus_dir, gather, load
from tamis.errors import RunConflict, UsageError
from tamis.formats.compression.source import StreamFault
from tamis.formats.compression.streams import StreamReader

TARGET_BYTES = 3_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Planted]:
    folder = tmp_path_factory.mktemp("demo")
    return folder, gather(folder, TARGET_BYTES, seed=7)


def read(path: Path) -> tuple[bytes, StreamFault | None]:
    data = b""
    with StreamReader.open(path) as reader:
        try:
            while piece := reader.read(1 << 20):
                data += piece
        except StreamFault as exc:
            return data, exc
    return data, None


def judge(line: bytes) -> str:
    if not line.strip():
        return "blank_line"
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return "invalid_utf8"
    except ValueError:
        return "broken_json"
    if not isinstance(record, dict):
        return "not_an_object"
    return judge_record(record)


def judge_record(record: dict[str, object]) -> str:
    source = str(record["source"])
    kind = source.split("/")[1].split(" ")[0] if source.startswith("planted/") else "document"
    if "text" not in record:
        assert kind == "missing_text"
    elif record["text"] is None:
        assert kind == "null_text"
    elif not isinstance(record["text"], str):
        assert kind == "non_string_text"
    return kind


def test_every_count_is_true(made: tuple[Path, Planted]) -> None:
    folder, planted = made
    totals: Counter[str] = Counter()
    texts: list[str] = []
    for file in planted.files:
        path = corpus_dir(folder) / file.name
        seen: Counter[str] = Counter()
        if path.suffix == ".parquet":
            rows = pq.read_table(path).to_pylist()
            seen.update(judge_record(row) for row in rows)
            texts += [row["text"] for row in rows if isinstance(row["text"], str)]
        else:
            data, fault = read(path)
            assert (fault is not None) == (file.fault_offset is not None)
            assert len(data) == file.n_bytes
            if fault is not None:
                assert (fault.decoded_offset, data[-1:]) == (file.fault_offset, b"\n")
            lines = data.split(b"\n")[:-1]
            kinds = [judge(line) for line in lines]
            seen.update(kinds)
            good = [
                json.loads(line)
                for line, kind in zip(lines, kinds, strict=True)
                if kind in ("document", "junk", "duplicate")
            ]
            texts += [record["text"] for record in good]
        n_documents = sum(
            n for kind, n in seen.items() if kind not in ("blank_line", "broken_json", "invalid_utf8", "not_an_object")
        )
        assert n_documents == file.n_documents
        del seen["document"]
        assert dict(seen) == file.planted
        totals.update(seen)
    assert dict(totals) == planted.totals
    assert len(texts) - len(set(texts)) == planted.totals["duplicate"]
    assert sum(not any(c.isalnum() for c in text) for text in texts) == planted.totals["junk"]


def test_totals(made: tuple[Path, Planted]) -> None:
    folder, planted = made
    assert planted.totals == {
        "broken_json": 3,
        "invalid_utf8": 3,
        "not_an_object": 3,
        "blank_line": 3,
        "null_text": 3,
        "non_string_text": 3,
        "missing_text": 3,
        "duplicate": 5,
        "junk": 3,
    }
    assert planted.n_bad_lines == 9
    assert (sum(f.n_bytes == 0 for f in planted.files), planted.n_damaged_files) == (1, 1)
    assert TARGET_BYTES <= planted.n_bytes < TARGET_BYTES * 1.1
    assert planted.n_documents == sum(file.n_documents for file in planted.files)
    assert load(folder) == planted
    # What cannot be read stays far below the limit of the demo (5 %), whatever texts this machine holds.
    name, readable = next((f.name, f.n_bytes) for f in planted.files if f.fault_offset is not None)
    broken = (corpus_dir(folder) / name).read_bytes()
    stored = sum(path.stat().st_size for path in corpus_dir(folder).iterdir())
    assert readable > 0
    assert 0 < len(broken) - len(broken.rstrip(b"\xff")) < 0.025 * stored
    assert sorted(p.name for p in folder.iterdir()) == ["corpus", "planted.json"]


def test_the_same_seed_gives_the_same_bytes(made: tuple[Path, Planted], tmp_path: Path) -> None:
    folder, planted = made
    assert gather(tmp_path, TARGET_BYTES, seed=7) == planted
    for file in planted.files:
        digests = [
            hashlib.sha256((corpus_dir(base) / file.name).read_bytes()).hexdigest() for base in (folder, tmp_path)
        ]
        assert digests[0] == digests[1]


def test_an_existing_corpus_is_not_touched(made: tuple[Path, Planted]) -> None:
    folder, _ = made
    before = sorted((p.name, p.stat().st_mtime_ns) for p in corpus_dir(folder).iterdir())
    with pytest.raises(RunConflict, match="exists already"):
        gather(folder, TARGET_BYTES)
    assert sorted((p.name, p.stat().st_mtime_ns) for p in corpus_dir(folder).iterdir()) == before


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.demo.corpus.LAYOUT", (("a.jsonl", 0.5), ("b.unknown.gz.rar", 0.0), ("c.jsonl", 0.5)))
    monkeypatch.setattr("tamis.demo.corpus.local_texts", lambda seed: iter(()))
    with pytest.raises(Exception, match="no more text"):
        gather(tmp_path, TARGET_BYTES)
    assert list(tmp_path.iterdir()) == []


def test_too_small_and_absent(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 200,000"):
        gather(tmp_path, 1000)
    assert load(tmp_path) is None
