"""What is written in the end: sizes of files, splits, order, formats, the card.

The same however the passes were cut.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import tamis
from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation, ExactDuplicates, FuzzyDuplicates, packer
from tamis.curation import output as output_module
from tamis.curation.card import Provenance, Split, make_card
from tamis.curation.state import OutputFiles, PackTask, packed_file
from tamis.curation.writing import make_writing, parse_split
from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.schema import RecordedRule
from tamis.errors import RunConflict, UsageError
from tamis.formats import registry
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.fasttext import LanguageFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.io.writer import JsonlWriter
from tests.curation.small_corpus import MEMORY, write
from tests.support.made_documents import text
from tests.support.run_dirs import data_names, run_dir_path

N = 120


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    docs = [{"id": i, "text": text(i, 60), "license": "cc0" if i % 4 else "mit"} for i in range(N)]
    (folder / "a.jsonl").write_text("".join(json.dumps(d) + "\n" for d in [*docs, docs[0]]))
    return folder


def run(source: Path, out: Path, blocksize: str = "5kB", fresh: bool = False, **writing: Any) -> Any:
    curation = Curation([ExactDuplicates()], str(source), str(out), name="a | name", **writing)
    return curation.run(InProcessExecutor(), memory=MEMORY, blocksize=blocksize, fresh=fresh)


def lines(path: Path) -> list[str]:
    data = path.read_bytes()
    return (
        (zstandard.ZstdDecompressor().decompressobj().decompress(data) if path.suffix == ".zst" else data)
        .decode()
        .splitlines()
    )


def split_of(out: Path, name: str) -> list[int]:
    return [json.loads(line)["id"] for p in sorted(out.glob(f"{name}-*")) for line in lines(p)]


@pytest.fixture(scope="module")
def packed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "out"
    run(source, out, file_type="jsonl.zst", shard_size="10kB", split="train=80,validation=20", shuffle=7)
    return out


def test_every_document_is_in_one_split_and_files_have_the_requested_size(packed: Path, source: Path) -> None:
    names = data_names(packed)
    shards = [n for n in names if n.startswith("train-")]
    assert names == ["README.md", *shards, *(n for n in names if n.startswith("validation-"))]
    assert shards == [f"train-{i:05d}-of-{len(shards):05d}.jsonl.zst" for i in range(len(shards))]
    sizes = [sum(len(line) + 1 for line in lines(packed / n)) for n in shards]
    assert all(8_000 < size <= 10_000 for size in sizes[:-1])
    train, validation = split_of(packed, "train"), split_of(packed, "validation")
    assert sorted(train + validation) == list(range(N))
    assert 10 < len(validation) < 40
    assert train != sorted(train)
    original = set((source / "a.jsonl").read_text().splitlines())
    assert {line for p in packed.glob("*.zst") for line in lines(p)} <= original  # byte for byte


def test_splits_and_order_do_not_depend_on_how_the_passes_were_cut_nor_on_what_else_there_is(
    packed: Path, source: Path, tmp_path: Path
) -> None:
    run(source, tmp_path / "out", blocksize="1MB", shard_size="1GB", split={"train": 80, "validation": 20}, shuffle=7)
    assert split_of(tmp_path / "out", "train") == split_of(packed, "train")
    assert [p.name for p in sorted((tmp_path / "out").glob("train*"))] == ["train-00000-of-00001.jsonl"]
    few = tmp_path / "few"
    few.mkdir()
    (few / "b.jsonl").write_text("".join((source / "a.jsonl").read_text().splitlines(True)[30:60]))
    run(few, tmp_path / "part", split="train=80,validation=20")
    assert set(split_of(tmp_path / "part", "validation")) == {i for i in split_of(packed, "validation") if 30 <= i < 60}
    assert split_of(tmp_path / "part", "train") == sorted(split_of(tmp_path / "part", "train"))  # not shuffled


@pytest.mark.parametrize("extension", ["jsonl", "parquet", "arrow"])
def test_files_of_a_size_do_not_depend_on_how_the_passes_were_cut(tmp_path: Path, extension: str) -> None:
    docs = [{"id": i, "text": text(i, 5 if i % 3 else 300 + i)} for i in range(90)]
    packed = [packed_from(tmp_path / str(n), docs, n, extension) for n in (90, 1, 7)]
    assert len(packed[0]) > 5
    assert packed[1] == packed[0]
    assert packed[2] == packed[0]


def packed_from(folder: Path, docs: list[dict[str, Any]], n_in_part: int, extension: str) -> list[bytes]:
    """Return the contents of files of 5 kB, made from files with so many documents each."""
    folder.mkdir()
    parts = []
    for k in range(0, len(docs), n_in_part):
        path = folder / f"{k:03d}.{extension}"
        if extension == "jsonl":
            path.write_text("".join(json.dumps(d) + "\n" for d in docs[k : k + n_in_part]))
        else:
            with registry.table_format(str(path)).TableWriter(str(path), pa.Table.from_pylist(docs).schema) as file:
                file.write(pa.Table.from_pylist(docs[k : k + n_in_part]))
        parts.append(str(path))
    packer.pack(str(folder), PackTask(parts, "text", extension, 5000, {}, None, 1_000_000))
    packed = packed_file(str(folder)).read()
    assert packed is not None
    return [Path(file.path).read_bytes() for file in packed.files]


def test_parquet_and_the_card(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(source, out, file_type="parquet", shard_size="8kB")
    tables = [pq.read_table(p) for p in sorted(out.glob("train-*.parquet"))]
    assert [i for t in tables for i in t["id"].to_pylist()] == list(range(N))
    assert len(tables) > 3
    card = (out / "README.md").read_text()
    for part in (
        "# a \\| name",
        "| read | 121 |",
        "| duplicates of others | 1 |",
        "| **written** | **120** |",
        "| cc0 | 90 |",
        "| mit | 30 |",
        'path: "train-*.parquet"',
        "120 documents, ",
        "characters of text",
        f"curated with Tamis {tamis.__version__}",
        'load_dataset("path/of/this/folder", split="train")',
        f"- `{source}`",
        '"license": "..."',
    ):
        assert part in card
    assert text(3, 60)[:30] not in card  # no text of a document
    run(source, out, fresh=True, card=False)
    assert not list(out.glob("train-*"))
    assert not (out / "README.md").exists()


@pytest.mark.parametrize(
    ("extension", "unpack"),
    [("jsonl", bytes), ("jsonl.gz", gzip.decompress), ("jsonl.bz2", bz2.decompress), ("jsonl.xz", lzma.decompress)],
)
def test_shards_are_compressed_as_their_names_say(extension: str, unpack: Any, tmp_path: Path) -> None:
    (tmp_path / "part.jsonl").write_bytes(b'{"text":"a"}\n{"text":"b"}\n')
    part = str(tmp_path / "part.jsonl")
    packer.pack(str(tmp_path), PackTask([part], "text", extension, None, {}, None, 1_000_000))
    packed = packed_file(str(tmp_path)).read()
    assert packed is not None
    (file,) = packed.files
    assert file.name == f"train-00000-of-00001.{extension}"
    assert unpack(Path(file.path).read_bytes()) == b'{"text":"a"}\n{"text":"b"}\n'


def test_shards_of_parquet_keep_the_types_and_metadata_of_the_input(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    ids = pa.array([bytes(range(16)), bytes(16)], pa.binary(16)).cast(pa.uuid())
    kinds = pa.array(["x", "y"]).dictionary_encode()
    table = pa.table({"text": pa.array(["a", "b"], pa.string_view()), "id": ids, "kind": kinds})
    table = table.append_column("lists", pa.array([["x", None], None], pa.list_(pa.string_view())))
    inner = pa.struct([("bytes", pa.binary_view()), ("n", pa.int32())])
    table = table.append_column("structs", pa.array([None, {"bytes": b"z", "n": 1}], inner))
    table = table.replace_schema_metadata({"huggingface": "{}", "pandas": "{}"})
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    run(tmp_path / "in", tmp_path / "out", shuffle=1)
    found = pq.read_table(tmp_path / "out" / "train-00000-of-00001.parquet")
    assert found.schema.metadata == {b"huggingface": b"{}"}
    assert found.schema.types == table.schema.types
    assert sorted(found.to_pylist(), key=lambda row: row["text"]) == table.to_pylist()


@pytest.mark.parametrize("file_type", [None, "arrow"])
def test_shards_of_arrow_hold_every_document(file_type: str | None, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table({"text": [f"text {i}" for i in range(150)], "n": range(150)})
    with pa.ipc.new_file(tmp_path / "in" / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    run(tmp_path / "in", tmp_path / "out", file_type=file_type, shard_size="1kB")
    shards = sorted((tmp_path / "out").glob("train-*.arrow"))
    assert len(shards) > 1
    assert pa.concat_tables(pa.ipc.open_file(p).read_all() for p in shards).to_pydict() == table.to_pydict()


def test_stopped_while_putting_the_output_together(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: Path
) -> None:
    out, how = (
        tmp_path / "out",
        {"shard_size": "10kB", "split": "train=80,validation=20", "shuffle": 7, "file_type": "jsonl.zst"},
    )
    real, moved = output_module.files.move, []

    def stop(path: str, final: str) -> None:
        moved.append(final)
        if len(moved) == 3:
            raise KeyboardInterrupt
        real(path, final)

    with monkeypatch.context() as patched:
        patched.setattr(output_module.files, "move", stop)
        with pytest.raises(KeyboardInterrupt):
            run(source, out, **how)
    again = run(source, out, fresh=True, **how)  # some of the files were there already, and none is left of them
    assert again.status == "finished"
    assert split_of(out, "train") == split_of(packed, "train")
    assert not list(out.glob("part-*"))
    with pytest.raises(RunConflict, match="it was written with"):
        run(source, out, shard_size="20kB")
    assert run(source, out, **how).status == "already"


def test_fresh_that_is_killed_while_it_removes_starts_over(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink, out = os.unlink, tmp_path / "out"
    run(source, out, shuffle=7)
    expected = split_of(out, "train")
    for next_to_go in ("README.md", "curation.json", "run.sqlite"):

        def killed(path: Any, *rest: Any, next_to_go: str = next_to_go, **more: Any) -> None:
            if os.path.basename(path) == next_to_go:
                raise KeyboardInterrupt
            unlink(path, *rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", killed)
            with pytest.raises(KeyboardInterrupt):
                run(source, out, shuffle=7, fresh=True)
        assert (run(source, out, shuffle=7).status, split_of(out, "train")) == ("finished", expected), next_to_go


def test_what_cannot_be_written_is_said() -> None:
    for given, message in (
        ({"file_type": "csv"}, "format must be one of .*jsonl.zst"),
        ({"shard_size": "10"}, "at least 1kB"),
        ({"split": "train=90"}, "sum up to 100"),
        ({"split": "train=50,train=50"}, "split"),
        ({"split": "../x=100"}, "split"),
        ({"split": {"a": "x"}}, "split"),
        ({"shuffle": -1}, "shuffle: expected a seed"),
        ({"card": "no"}, "card"),
    ):
        with pytest.raises(UsageError, match=message):
            make_writing(**given)
    assert parse_split({"train": 99, "test": "1%"}) == {"train": 0.99, "test": 0.01}
    with pytest.raises(UsageError, match="go with output_path"):
        Curation([ExactDuplicates(), JsonlWriter("out")], "in", shard_size="1MB")
    with pytest.raises(RunConflict, match="no file of this output"):
        output_module.tidy_output("/tmp", OutputFiles(replaced=["../x"]))


def test_a_card_names_the_one_language_that_is_kept(source: Path, tmp_path: Path) -> None:
    curation = Curation([LanguageFilter("en")], str(source), str(tmp_path / "out"))
    assert output_module._language(curation) == "en"
    assert 'language:\n- "en"' in make_card("x", Ledger(), [], [], "en")
    assert "Nothing was written" in make_card("x", Ledger(), [], [], None)


def test_datasets_loads_the_folder(packed: Path, tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="the library datasets is not installed")
    code = (
        "import sys, datasets; d = datasets.load_dataset(sys.argv[1], cache_dir=sys.argv[2]);"
        "print({k: sorted(v['id']) for k, v in d.items()})"
    )
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(packed), str(tmp_path / "cache")],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert eval(done.stdout) == {name: sorted(split_of(packed, name)) for name in ("train", "validation")}


def test_scores_of_rules_before_a_deduplication_have_distributions(tmp_path: Path) -> None:
    source = write(tmp_path / "in", 90)

    def scores(name: str, steps: list[Any]) -> list[dict[str, Any]]:
        Curation(steps, str(source), str(tmp_path / name)).run(
            InProcessExecutor(), memory=MEMORY, quarantine_limit="5%", progress=False
        )
        run_dir = run_dir_path(tmp_path / name)
        manifest = json.loads((run_dir / "manifest.json").read_text())
        tables = [table for table in manifest["histograms"] if table["kind"] == "score"]
        tables = [table for table in tables if table["name"] != "similarity"]
        assert "documents that reached the rule" in (run_dir / "report.html").read_text()
        with sqlite3.connect(run_dir / "run.sqlite") as db:
            query = "SELECT stage, name, bins FROM histograms WHERE kind = 'score' AND name != 'similarity'"
            stored = db.execute(query).fetchall()
        db.close()
        assert [(s, n, json.loads(bins)) for s, n, bins in stored] == [
            (t["stage"], t["name"], t["bins"]) for t in tables
        ]
        return tables

    def rule() -> Any:
        return ScoreFilter(WordCountFilter(min_words=30), name="long_enough")

    alone = scores("alone", [rule()])
    assert [(t["stage"], t["limits"]) for t in alone] == [("long_enough", [30, 100000])]
    assert sum(n for *_, n in alone[0]["bins"]) > 0
    assert scores("exact", [rule(), ExactDuplicates()]) == alone
    later = scores("both", [rule(), ExactDuplicates(), ScoreFilter(WordCountFilter(min_words=50)), FuzzyDuplicates()])
    assert later[:1] == alone
    assert len(later) == 2


def test_a_card_folds_rules_that_dropped_nothing_and_stays_one_page_with_hostile_names() -> None:
    ledger = Ledger()
    ledger.records.add(100, 1)
    ledger.written.add(60, 1)
    describe, quality = StageBook("describe"), StageBook("quality")
    describe.count({"field=```\n# owned": 60, "characters": 240_000, "tokens written": 60_000})
    quality.drop("short", 40, 1)
    ledger.stages = [quality, describe]
    rules = [RecordedRule("quality", name, limits={"minimum": 3}) for name in ("short", "long", "odd")]
    provenance = Provenance(
        ["in/`x`"], "tamis curate in out --preset web", "0.1.0", {"text": "text", "n": "number", "```": ""}
    )
    card = make_card("name", ledger, rules, [Split("train", "part-*", 60, 1000)], None, provenance=provenance)
    assert "60 of 100 documents (60.0%), curated with Tamis 0.1.0. About 60,000 tokens" in card
    assert "| quality | short | minimum 3 | 40 |" in card
    assert "<summary>2 rules that dropped nothing</summary>" in card
    assert "tamis curate in out --preset web" in card
    assert "\n# owned" not in card
    fences = [line for line in card.splitlines() if line.startswith("```")]
    assert fences == ["```text", "```", "```python", "```", "```json", "```", "```sh", "```"]
    (bar,) = [line for line in card.splitlines() if line.startswith("written")]
    assert bar.count("█") == 24
    assert "without quarantine" not in card
    ledger.quarantined.add(10, 1)
    ledger.records.add(10, 1)
    card = make_card("name", ledger, rules, [Split("train", "part-*", 60, 1000)], None, provenance=provenance)
    chart = [line.split()[:-1] for line in card.partition("left by each step:")[2].partition("## Use")[0].splitlines()]
    assert [words for words in chart if words] == [
        ["read", "110"],
        ["without", "quarantine", "100"],
        ["quality", "60"],
        ["written", "60"],
    ]
