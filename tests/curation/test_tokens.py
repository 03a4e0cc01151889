"""Curations that write token ids, and `tamis tokenize`: the same tokens in every format, order and partition."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis import InProcessExecutor, Pipeline
from tamis.curation import Curation, token_packer
from tamis.curation import output as output_module
from tamis.curation.state import TokenPackTask, packed_file
from tamis.errors import UsageError
from tamis.formats.megatron.index import read_index
from tamis.formats.tokens.files import FORMATS
from tamis.observe.report.facts import gather
from tamis.observe.report.token_flow import token_flow
from tamis.stages.text.io import JsonlReader, JsonlWriter
from tamis.stages.text.tokens.stages import IDENTITY, IDS, CountTokens, TokenWriter
from tests.stages.text.tokens import small_tokenizers
from tests.stages.text.tokens.small_tokenizers import TEXTS
from tests.support.run_dirs import run_dir_path
from tests.support.warm_python import run_python

pytest.importorskip("tokenizers")
N = 240


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    small_tokenizers.save(folder / "tok")
    (folder / "in").mkdir()
    for k in range(3):
        lines = (
            {"text": f"{TEXTS[i % 10] * (i % 3)} {k} {i}", "language": ["en", "de"][i % 2], "quality_bucket": i % 3}
            for i in range(N // 3)
        )
        (folder / f"in/{k}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with open(folder / "in/2.jsonl", "a") as file:
        file.write('{"text": null}\n{"text": "  "}\n')
    return folder


def texts(data: Path) -> list[str]:
    lines = [line for k in range(3) for line in (data / f"in/{k}.jsonl").read_text().splitlines()]
    return [text for line in lines if (text := json.loads(line)["text"]) and text.strip()]


def expected(data: Path) -> list[list[int]]:
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(str(data / "tok/tokenizer.json"))
    return [[*one.ids, 0] for one in library.encode_batch_fast(texts(data), add_special_tokens=False)]


def tamis(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "tamis.cli.start", *map(str, arguments))


def tokenize(data: Path, out: Path, *options: Any) -> dict[str, Any]:
    done = tamis("tokenize", data / "in", out, "--tokenizer", data / "tok", "--memory", "900MB", "--json", *options)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def of_flat(folder: Path, pattern: str = "*.npy") -> list[list[int]]:
    found = []
    for path in sorted(folder.glob(pattern)):
        ids, offsets = np.load(path, mmap_mode="r").reshape(-1), np.load(path.with_suffix(".offsets"))
        found += [ids[a:b].tolist() for a, b in pairwise(offsets)]
    return found


def test_one_file_for_each_partition(data: Path, tmp_path: Path) -> None:
    about = tokenize(data, tmp_path / "npy", "--format", "npy", "--blocksize", "8kB", "--workers", "2")
    lists = expected(data)
    assert of_flat(tmp_path / "npy") == lists
    assert (about["n_records"], about["n_written"], about["n_dropped"]) == (N + 2, N, 2)
    assert about["n_tokens"] == sum(map(len, lists))
    card = (tmp_path / "npy/README.md").read_text()
    assert "by the tokenizer tok" in card
    assert "| language=en |" in card
    in_bucket = sum(len(ids) for i, ids in enumerate(lists) if i % (N // 3) % 3 == 2)
    assert f"| quality\\_bucket=2 | {in_bucket:,} |" in card
    assert "data_files" not in card
    page = (run_dir_path(tmp_path / "npy") / "report.html").read_text()
    assert f"tokens: {about['n_tokens']:,}" in page
    assert "tokens language=en: " in page
    tokenize(data, tmp_path / "meg", "--end-token", "<|im_start|>")
    (tokens,) = (tmp_path / "meg").glob("*.bin")
    lengths, _, kind = read_index(tokens.with_suffix(".idx"))
    ids = np.fromfile(tokens, kind)
    assert lengths.tolist() == [len(one) for one in lists]
    assert ids.tolist() == [i for one in lists for i in (*one[:-1], 1)]
    assert tokenize(data, tmp_path / "meg", "--end-token", "<|im_start|>")["status"] == "already"


@pytest.mark.parametrize("packing", ["concatenate", "best-fit"])
def test_shuffled_sequences_do_not_depend_on_how_the_input_is_cut(data: Path, tmp_path: Path, packing: str) -> None:
    options = ("--format", "npy", "--sequence-length", "32", "--packing", packing, "--shuffle", "7", "--split")
    options += ("train=80,validation=20", "--shard-size", "4kB")
    about = tokenize(data, tmp_path / "a", *options)
    again = tokenize(data, tmp_path / "b", *options, "--blocksize", "5kB", "--workers", "2")
    names = sorted(p.name for p in (tmp_path / "a").glob("*-of-*"))
    assert len([name for name in names if name.startswith("train") and name.endswith(".npy")]) > 2
    sizes = sum((tmp_path / "a" / name).stat().st_size for name in names)
    assert (about["n_files"], about["written_bytes"]) == (len(names), sizes)
    assert names == sorted(p.name for p in (tmp_path / "b").glob("*-of-*"))
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    rows = np.concatenate([np.load(path) for path in (tmp_path / "a").glob("*.npy")])
    n_tokens = sum(map(len, expected(data)))
    assert rows.shape == (about["n_sequences"], 32)
    assert (about["n_tokens"], about["n_padding"]) == (n_tokens, rows.size - n_tokens)
    assert again["n_padding"] == about["n_padding"]
    assert sorted(rows.reshape(-1).tolist()) == sorted(
        [i for one in expected(data) for i in one] + [0] * about["n_padding"]
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_files_of_a_size_do_not_depend_on_how_the_passes_were_cut(tmp_path: Path, kind: str) -> None:
    lists = [[i % 50] * (20 if i % 3 else 100 + i) for i in range(90)]
    packed = [packed_from(tmp_path / str(n), lists, n, kind) for n in (90, 1, 7)]
    assert len(packed[0]) > 5
    assert packed[1] == packed[0]
    assert packed[2] == packed[0]


def packed_from(folder: Path, lists: list[list[int]], n_in_part: int, kind: str) -> list[bytes]:
    """Return the contents of files of 600 bytes of ids, made from files with so many documents each."""
    folder.mkdir()
    parts = []
    for k in range(0, len(lists), n_in_part):
        some = lists[k : k + n_in_part]
        ids = pa.array(some, pa.large_list(pa.uint16()))
        table = pa.table({IDS: ids, IDENTITY: pa.array(range(len(some)), pa.uint64())})
        parts.append(str(folder / f"{k:03d}.arrow"))
        with pa.ipc.new_file(parts[-1], table.schema) as file:
            file.write_table(table)
    task = TokenPackTask(parts, kind, False, None, "concatenate", False, 600, {}, None, 1_000_000)
    token_packer.pack(str(folder), task)
    packed = packed_file(str(folder)).read()
    assert packed is not None
    return [Path(file.path).read_bytes() for file in packed.files]


def test_files_of_a_divided_partition_are_packed_in_the_order_of_the_input(data: Path, tmp_path: Path) -> None:
    tasks: list[Any] = []
    curation = Curation([], "in", str(tmp_path), tokens={"tokenizer": str(data / "tok")})
    runner = SimpleNamespace(run_task=lambda folder, task, *more: tasks.append(task))
    settings = SimpleNamespace(budget_bytes=lambda: 10**9)
    output = SimpleNamespace(path=str(tmp_path))
    run: Any = SimpleNamespace(curation=curation, runner=runner, settings=settings, output=output)
    names = [
        "part-000000-000000000008.arrow",
        "part-000000-000000000008_000001.arrow",
        "part-000001-000000000000.arrow",
    ]
    output_module._call_packer(run, str(tmp_path), names)
    assert [os.path.basename(path) for path in tasks[0].parts] == names


def test_why_names_documents_without_ids_by_their_place(data: Path, tmp_path: Path) -> None:
    tokenize(data, tmp_path / "out")
    by_id = tamis("why", tmp_path / "out", "d2")
    assert (by_id.returncode, "because the output has no ids: name it as FILE:OFFSET" in by_id.stderr) == (2, True)
    (source, *_) = sorted((data / "in").glob("*.jsonl*"))
    assert "was kept" in tamis("why", tmp_path / "out", f"{source}:0").stdout


def test_shuffled_documents_are_the_same_documents(data: Path, tmp_path: Path) -> None:
    tokenize(data, tmp_path / "a", "--format", "npy", "--shuffle", "1")
    tokenize(data, tmp_path / "b", "--format", "npy", "--shuffle", "2")
    a, b, lists = of_flat(tmp_path / "a"), of_flat(tmp_path / "b"), expected(data)
    assert sorted(a) == sorted(b) == sorted(lists)
    assert len({json.dumps(found) for found in (a, b, lists)}) == 3


def test_splits_are_those_of_the_documents(data: Path, tmp_path: Path) -> None:
    split = "train=70,test=30"
    tokenize(data, tmp_path / "tokens", "--format", "npy", "--split", split)
    documents = tmp_path / "documents"
    Curation([], str(data / "in"), str(documents), split=split).run(InProcessExecutor(), progress=False)
    kept = [json.loads(line)["text"] for line in (documents / "test-00000-of-00001.jsonl").read_text().splitlines()]
    of_text = dict(zip(texts(data), expected(data), strict=True))
    assert of_flat(tmp_path / "tokens", "test-*.npy") == [of_text[text] for text in kept if text and text.strip()]


def test_mds_and_parquet(data: Path, tmp_path: Path) -> None:
    tokenize(data, tmp_path / "mds", "--format", "mds", "--sequence-length", "16", "--shard-size", "4kB")
    index = json.loads((tmp_path / "mds/index.json").read_text())
    names = [shard["zip_data"]["basename"] for shard in index["shards"]]
    assert names == sorted(p.name for p in (tmp_path / "mds").glob("*.mds.zstd"))
    assert len(names) > 1
    tokenize(data, tmp_path / "plain", "--format", "mds", "--compression", "none")
    (shard,) = json.loads((tmp_path / "plain/index.json").read_text())["shards"]
    (path,) = (tmp_path / "plain").glob("*.mds*")
    assert (shard["raw_data"], shard["zip_data"]) == (
        {"basename": path.name, "bytes": path.stat().st_size, "hashes": {}},
        None,
    )
    tokenize(data, tmp_path / "parquet", "--format", "parquet")
    found = [
        row
        for p in sorted((tmp_path / "parquet").glob("*.parquet"))
        for row in pq.read_table(p)["input_ids"].to_pylist()
    ]
    assert found == expected(data)


def test_files_load_with_datasets(data: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    tokenize(data, tmp_path / "out", "--format", "parquet", "--sequence-length", "16", "--split", "train=90,test=10")
    loaded = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.column_names == ["input_ids", "document_starts"]
    assert all(len(row) == 16 for row in loaded["input_ids"])


def test_a_curation_in_one_command(data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "name: mine\ninput: ???\noutput: ???\nsteps:\n  - text\n  - exact_duplicates: {max_source_loss: 1}\n"
    )
    options = ("--preset", recipe, "--tokenize", data / "tok", "--format", "npy", "--sequence-length", "16")
    done = tamis("curate", data / "in", tmp_path / "out", *options, "--memory", "900MB", "--json")
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    assert about["n_sequences"] == len(np.load(tmp_path / "out/train-00000-of-00001.npy"))
    done = tamis("curate", data / "in", tmp_path / "x", "--sequence-length", "16")
    assert "are for token ids; give --tokenize FOLDER" in done.stderr


def test_the_flow_in_tokens_is_what_a_step_counted(data: Path, tmp_path: Path) -> None:
    """What a rule dropped after `count_tokens` is the sum over its documents; before it, an estimate."""
    recipe, tok, words = tmp_path / "mine.yaml", data / "tok", "tamis.stages.text.filters.heuristic.WordCountFilter"
    rules = [f"{{_target_: {words}, min_words: {n}, max_words: 1000000}}" for n in (3, 8)]
    score = "  - {{_target_: tamis.stages.text.filters.ScoreFilter, name: {}, filter_obj: {}}}\n"
    steps = f"  - text\n{score.format('early', rules[0])}  - count_tokens: {{tokenizer: {tok}}}\n"
    steps += f"{score.format('late', rules[1])}  - exact_duplicates: {{max_source_loss: 1}}\n"
    recipe.write_text(f"name: mine\ninput: ???\noutput: ???\nsteps:\n{steps}")
    shutil.copytree(data / "in", tmp_path / "in")
    shutil.copy(data / "in/0.jsonl", tmp_path / "in/again.jsonl")
    done = tamis("curate", tmp_path / "in", tmp_path / "out", "--preset", recipe, "--memory", "900MB")
    assert done.returncode == 0, done.stderr
    facts = gather(run_dir_path(tmp_path / "out"))
    assert facts.ledger is not None
    flow = token_flow(facts)
    counted = next(int(b.metrics["tokens"]) for b in facts.ledger.stages if b.name == "count_tokens")
    files = (tmp_path / "out").glob("*.jsonl")
    kept = sum(json.loads(line)["n_tokens"] for path in files for line in path.read_text().splitlines())
    after = [n for (stage, _), n in flow.dropped.items() if stage in ("late", "remove_exact_duplicates")]
    assert len(after) == 2
    assert all(after)
    assert flow.kept == kept == counted - sum(after)
    assert flow.note.startswith("Counted by count_tokens. Of documents that it did not count, an estimate")
    assert f"{kept:,} tokens in {facts.ledger.written.n:,} documents" in done.stdout


def test_the_writer_of_a_pipeline(data: Path, tmp_path: Path) -> None:
    writer = TokenWriter(str(tmp_path / "out"), str(data / "tok"), "raw", end_token="none")
    Pipeline("tokens", stages=[JsonlReader(str(data / "in/0.jsonl")), writer]).run(InProcessExecutor())
    (tokens,) = (tmp_path / "out").glob("*.bin")
    assert np.load(tokens.with_suffix(".offsets")).size == N // 3 + 1
    lists = expected(data)[: N // 3]
    assert np.fromfile(tokens, "<u2").tolist() == [i for one in lists for i in one[:-1]]


def test_what_is_refused(data: Path, tmp_path: Path) -> None:
    tok, source = str(data / "tok"), str(data / "in")
    for options, message in (
        ({}, "tokenizer is missing"),
        ({"tokenizer": tok, "shape": 3}, "unknown 'shape'"),
        ({"tokenizer": tok, "format": "csv"}, "token format must be one of"),
        ({"tokenizer": tok, "compression": "none"}, "compression: 'none' is for format mds; megatron has no choice"),
        ({"tokenizer": tok, "format": "mds", "compression": "gzip"}, "compression must be one of"),
        ({"tokenizer": tok, "packing": "best-fit"}, "give sequence_length, too"),
        ({"tokenizer": tok, "sequence_length": 1}, "sequence_length: expected 2 to"),
        ({"tokenizer": str(tmp_path / "none")}, "there is none"),
    ):
        with pytest.raises(UsageError, match=message):
            Curation([], source, str(tmp_path / "out"), tokens=options)
    with pytest.raises(UsageError, match="shards of mds have one index"):
        Curation([], source, str(tmp_path / "o"), split="a=50,b=50", tokens={"tokenizer": tok, "format": "mds"})
    with pytest.raises(UsageError, match="with a tokenizer token ids are written"):
        Curation([], source, str(tmp_path / "o"), file_type="jsonl", tokens={"tokenizer": tok})
    with pytest.raises(UsageError, match="which tamis tokenize and a Curation write"):
        TokenWriter(str(tmp_path / "o"), tok, "mds")
    assert not os.path.exists(tmp_path / "out")


def test_a_tokenizer_that_is_not_there_is_a_mistake_of_the_option(data: Path, tmp_path: Path) -> None:
    for arguments in (("tokenize", "--tokenizer"), ("curate", "--tokenize")):
        done = tamis(arguments[0], data / "in", tmp_path / "out", arguments[1], "nosuch", "--memory", "900MB")
        assert done.returncode == 2
        assert done.stderr.startswith("error: tokenizer nosuch: expected a folder with a tokenizer.json")
    assert not os.path.exists(tmp_path / "out")


def test_the_reason_is_said_where_the_library_encodes(data: Path, tmp_path: Path) -> None:
    parts = json.loads((data / "tok/tokenizer.json").read_text())
    parts["pre_tokenizer"] = {"type": "Whitespace"}
    shutil.copytree(data / "tok", tmp_path / "other")
    (tmp_path / "other/tokenizer.json").write_text(json.dumps(parts))
    done = tamis("tokenize", data / "in", tmp_path / "out", "--tokenizer", tmp_path / "other", "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert "encoded by the library tokenizers, as its pre-tokenizer ends with 'Whitespace'" in done.stdout
    own = tamis("tokenize", data / "in", tmp_path / "own", "--tokenizer", data / "tok", "--workers", 1)
    assert own.returncode == 0
    assert "library" not in own.stdout


def test_a_tokenizer_without_an_end(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tok"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((data / "tok/tokenizer.json").read_bytes())
    done = tamis("tokenize", data / "in", tmp_path / "out", "--tokenizer", folder, "--memory", "900MB")
    assert done.returncode == 2
    assert "does not say which token ends a document" in done.stderr


def test_counts_as_a_field(data: Path, tmp_path: Path) -> None:
    counted = CountTokens(str(data / "tok"))
    Pipeline("counts", stages=[JsonlReader(str(data / "in/0.jsonl")), counted, JsonlWriter(str(tmp_path / "out"))]).run(
        InProcessExecutor()
    )
    (path,) = (tmp_path / "out").glob("*.jsonl")
    found = [json.loads(line)["n_tokens"] for line in path.read_text().splitlines()]
    assert found == [len(ids) - 1 for ids in expected(data)[: N // 3]]
