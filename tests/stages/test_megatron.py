"""Tokens for Megatron: the exact bytes, the writer, merging. A small tokenizer stands in for the library."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis import InProcessExecutor
from tamis.errors import FormatError, UsageError
from tamis.formats.megatron.index import read_index
from tamis.pipeline import Pipeline
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer.megatron_tokenizer import TOKENS, MegatronTokenizerWriter, MegatronTokenizeStage
from tamis.tasks import DocumentBatch, FileGroupTask
from tamis.utils.merge_file_prefixes import IndexedDatasetBuilder, extract_index_contents, get_args, merge_file_prefixes
from tests.stages.text.models import small_models
from tests.stages.text.tokens import small_tokenizers
from tests.support.warm_python import run_python


class Letters:
    """A token is a letter; ids from 10 on. Called as tokenizers of the library `transformers` are."""

    def __init__(self, n_tokens: int = 1000, eos: int | None = 1) -> None:
        self.n_tokens, self.eos_token_id = n_tokens, eos
        self.calls: list[int] = []

    def __len__(self) -> int:
        return self.n_tokens

    def __call__(self, texts: list[str], **options: Any) -> dict[str, Any]:
        assert options["add_special_tokens"] is options["truncation"] is False
        self.calls.append(len(texts))
        return {"input_ids": [[ord(c) - ord("a") + 10 for c in text] for text in texts]}


@pytest.fixture
def tokenizer(monkeypatch: pytest.MonkeyPatch) -> Letters:
    made = Letters()
    asked: list[dict[str, Any]] = []

    def from_pretrained(name: str, **options: Any) -> Letters:
        asked.append({"name": name, **options})
        return made

    made.asked = asked  # type: ignore[attr-defined]
    library = SimpleNamespace(AutoTokenizer=SimpleNamespace(from_pretrained=from_pretrained))
    monkeypatch.setitem(sys.modules, "transformers", library)
    return made


def batch(*texts: str | None, **metadata: Any) -> DocumentBatch:
    return DocumentBatch("set", pa.table({"text": list(texts)}), _metadata=metadata)


def test_the_bytes_are_megatrons(tokenizer: Letters, tmp_path: Path) -> None:
    stage = MegatronTokenizerWriter(
        str(tmp_path), model_identifier="m", append_eod=True, hf_token="hf_12345", tokenization_batch_size=2
    )
    stage.setup_on_node()
    stage.setup()
    task = stage.process(batch("abc", None, "z", source_files=["f"]))
    assert Path(task.data[0]).read_bytes() == struct.pack("<7H", 10, 11, 12, 1, 1, 35, 1)
    assert Path(task.data[1]).read_bytes() == (
        b"MMIDIDX\x00\x00"
        + struct.pack("<QBQQ", 1, 8, 3, 4)
        + struct.pack("<3i", 4, 1, 2)
        + struct.pack("<3q", 0, 8, 10)
        + struct.pack("<4q", 0, 1, 2, 3)
    )
    assert tokenizer.calls == [2, 1]
    assert {k: task._metadata[k] for k in ("num_tokens", "token_size", "eod_token_id")} == {
        "num_tokens": 7,
        "token_size": 2,
        "eod_token_id": 1,
    }
    asked = [(a["local_files_only"], a["token"], a["trust_remote_code"]) for a in tokenizer.asked]  # type: ignore[attr-defined]
    assert asked == [(False, "hf_12345", False), (True, "hf_12345", False)]
    trusting = MegatronTokenizerWriter(
        str(tmp_path / "other"), model_identifier="m", transformers_init_kwargs={"trust_remote_code": True}
    )
    trusting.setup()
    assert tokenizer.asked[-1]["trust_remote_code"] is True  # type: ignore[attr-defined]
    assert "hf_12345" not in repr(stage.get_config())
    assert stage.process(batch("abc", None, "z", source_files=["f"])).data == task.data
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".bin", ".idx"]


def test_equal_batches_of_unknown_origin_do_not_replace_each_other(tokenizer: Letters, tmp_path: Path) -> None:
    stage = MegatronTokenizerWriter(str(tmp_path), model_identifier="m")
    assert stage.process(batch("abc")).data != stage.process(batch("abc")).data


def test_many_tokens_take_four_bytes(tokenizer: Letters, tmp_path: Path) -> None:
    tokenizer.n_tokens = 65_537
    task = MegatronTokenizerWriter(str(tmp_path), model_identifier="m").process(batch("ab"))
    assert Path(task.data[0]).read_bytes() == struct.pack("<2i", 10, 11)
    assert read_index(task.data[1])[2] == "int32"


def test_what_is_refused(tokenizer: Letters, tmp_path: Path) -> None:
    make = MegatronTokenizerWriter
    for options, message in (
        ({}, "model_identifier is missing"),
        ({"model_identifier": "m", "mode": "maybe"}, "mode must be one of"),
        ({"model_identifier": "m", "tokenization_batch_size": 0}, "at least 1"),
        ({"model_identifier": "m", "file_extension": [".x"]}, "file_extension must be"),
        ({"model_identifier": "m", "write_kwargs": {"x": 1}}, "unknown write_kwargs"),
        ({"model_identifier": "m", "transformers_init_kwargs": {"local_files_only": True}}, "local_files_only cannot"),
    ):
        with pytest.raises(UsageError, match=message):
            make(str(tmp_path), **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="writes to local folders"):
        make("s3://b/tokens", model_identifier="m").process(batch("a"))
    tokenizer.eos_token_id = None
    with pytest.raises(UsageError, match="has no end-of-sequence token"):
        make(str(tmp_path), model_identifier="m", append_eod=True).process(batch("a"))
    tokenizer.n_tokens, tokenizer.eos_token_id = 1000, 70_000
    with pytest.raises(UsageError, match="token 70000 does not fit into uint16"):
        make(str(tmp_path), model_identifier="m", append_eod=True).process(batch("a"))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"pip install 'tamis\[models\]'"):
        MegatronTokenizerWriter(str(tmp_path), model_identifier="m").setup()


def test_in_a_pipeline_and_merged(tokenizer: Letters, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, texts in (("a", ["abc", "d"]), ("b", ["efg"])):
        (tmp_path / f"in/{name}.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    writer = MegatronTokenizerWriter(str(tmp_path / "out"), model_identifier="m")
    stages = [JsonlReader(str(tmp_path / "in"), files_per_partition=1), writer]
    written = Pipeline("tokens", stages=stages).run(executor=InProcessExecutor())
    assert all(isinstance(t, FileGroupTask) for t in written)
    assert sorted(p for t in written for p in t.data) == sorted(str(p) for p in (tmp_path / "out").glob("part-*"))
    merge_file_prefixes(str(tmp_path / "out"), str(tmp_path / "all/tokens"))
    lengths, documents, dtype = extract_index_contents(str(tmp_path / "all/tokens.idx"))
    assert (sorted(lengths.tolist()), documents.tolist(), dtype) == ([1, 3, 3], [0, 1, 2, 3], np.uint16)
    tokens = np.fromfile(tmp_path / "all/tokens.bin", "<u2").tolist()
    assert sorted(tokens) == [10, 11, 12, 13, 14, 15, 16]
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == ["tokens.bin", "tokens.idx"]


def test_a_result_in_the_input_folder_is_not_merged_again(tokenizer: Letters, tmp_path: Path) -> None:
    stage = MegatronTokenizerWriter(str(tmp_path / "in"), model_identifier="m")
    for text in ("abc", "de"):
        stage.process(batch(text, source_files=[text]))
    merge_file_prefixes(str(tmp_path / "in"), str(tmp_path / "in/all"))
    before = (tmp_path / "in/all.bin").read_bytes()
    assert len(before) == 10
    (tmp_path / "same").symlink_to(tmp_path / "in")
    for prefix in (tmp_path / "in/all", tmp_path / "same/all"):
        with pytest.raises(UsageError, match="this pair is in the input folder already"):
            merge_file_prefixes(str(tmp_path / "in"), str(prefix))
    assert (tmp_path / "in/all.bin").read_bytes() == before


def test_merging_refuses_what_does_not_fit(tokenizer: Letters, tmp_path: Path) -> None:
    stage = MegatronTokenizerWriter(str(tmp_path / "in"), model_identifier="m")
    first, second = (stage.process(batch(t, source_files=[t])).data for t in ("abc", "de"))
    builder = IndexedDatasetBuilder(str(tmp_path / "x.bin"), np.int32)
    with pytest.raises(FormatError, match="its tokens are uint16, those before it int32"):
        builder.add_index(first[0].removesuffix(".bin"))
    builder.abort()
    Path(second[0]).write_bytes(b"\0\0")
    with pytest.raises(FormatError, match=r"has 2 bytes where its index tells 4"):
        merge_file_prefixes(str(tmp_path / "in"), str(tmp_path / "all"))
    Path(second[0]).unlink()
    with pytest.raises(UsageError, match=r"there is no \.bin file"):
        merge_file_prefixes(str(tmp_path / "in"), str(tmp_path / "all"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no pairs"):
        merge_file_prefixes(str(tmp_path / "empty"), str(tmp_path / "all"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "in"]
    assert get_args(["--input-dir", "a", "--output-prefix", "b"]).output_prefix == "b"


@pytest.mark.parametrize(
    "damage", [b"", b"MMIDIDX\0\0", b"x" * 50, b"MMIDIDX\0\0" + struct.pack("<QBQQ", 2, 8, 0, 1) + bytes(8)]
)
def test_a_file_that_is_no_index_is_reported(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "a.idx").write_bytes(damage)
    with pytest.raises(FormatError, match=r"a\.idx: "):
        read_index(tmp_path / "a.idx")
    (tmp_path / "a.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2**40, 1) + bytes(8))
    with pytest.raises(FormatError, match="it is damaged"):
        read_index(tmp_path / "a.idx")


RECIPE = """
stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: {source}
  - _target_: tamis.stages.text.filters.score_filter.ScoreFilter
    filter_obj: {{_target_: tamis.stages.text.filters.heuristic.string.WordCountFilter, min_words: 3}}
  - _target_: tamis.stages.text.io.writer.MegatronTokenizerWriter
    path: {target}
    model_identifier: {model}
"""


def tokenizing(folder: Path, target: str, *options: str) -> list[str]:
    """Return the command that tokenizes `in.jsonl` of a folder."""
    recipe = folder / f"{target}.yaml"
    paths = {"source": folder / "in.jsonl", "target": folder / target, "model": folder / "model"}
    recipe.write_text(RECIPE.format(**paths))
    return [sys.executable, "-m", "tamis.cli.start", "run", str(recipe), "--memory", "1GB", "--json", *options]


def run(folder: Path, target: str, *options: str) -> dict[str, Any]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = run_python(*tokenizing(folder, target, *options)[1:], env=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def make_input(folder: Path) -> list[str]:
    """Save a tokenizer and `in.jsonl`; return the texts."""
    small_models.save_tokenizer(folder / "model")
    texts = [*(f"{i} {t}" for i in range(50) for t in small_models.texts(40)), "two words"]
    (folder / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    return texts


@pytest.mark.timeout(400)
def test_a_tokenized_output_counts_its_documents_and_can_be_repeated(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    texts = make_input(tmp_path)
    n_short = sum(len(t.split()) < 3 for t in texts)
    about = run(tmp_path, "one", "--workers", "1")
    assert (about["n_records"], about["n_written"], about["n_dropped"]) == (2001, 2001 - n_short, n_short)
    assert about["n_files"] == len(list((tmp_path / "one").glob("part-*"))) == 2
    lengths, _, dtype = read_index(next((tmp_path / "one").glob("*.idx")))
    tokens = sum(int(stage["metrics"].get("tokens", 0)) for stage in about["stages"])
    assert (len(lengths), dtype, int(lengths.sum())) == (2001 - n_short, "uint16", tokens)
    assert run(tmp_path, "one")["status"] == "already"
    again = run(tmp_path, "two", "--workers", "2", "--blocksize", "100kB")
    assert again["content_hash"] == about["content_hash"]
    pairs = sorted((tmp_path / "two").glob("*.bin"))
    assert len(pairs) > 1
    (whole,) = (tmp_path / "one").glob("*.bin")
    assert b"".join(p.read_bytes() for p in pairs) == whole.read_bytes()


@pytest.mark.timeout(400)
def test_a_tokenized_output_resumes_after_a_kill(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    make_input(tmp_path)
    whole = run(tmp_path, "whole", "--workers", "1")
    command = tokenizing(tmp_path, "killed", "--workers", "1", "--blocksize", "4kB")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    killed = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
    )
    try:
        while len(list((tmp_path / "killed").glob("*.bin"))) < 3:
            assert killed.poll() is None, "it ended before it was killed: use smaller blocks"
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    n_before = len(list((tmp_path / "killed").glob("*.bin")))
    resumed = run(tmp_path, "killed", "--workers", "2", "--blocksize", "100kB")
    names = ("n_records", "n_written", "n_dropped", "content_hash")
    assert [resumed[name] for name in names] == [whole[name] for name in names]
    pairs = sorted((tmp_path / "killed").glob("*.bin"))
    assert len(pairs) > n_before
    (expected,) = (tmp_path / "whole").glob("*.bin")
    assert b"".join(p.read_bytes() for p in pairs) == expected.read_bytes()


def test_kernels_give_the_ids_of_the_tokenizer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small_tokenizers.save(tmp_path / "model", "qwen2")
    own = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "model"))
    texts = [*small_tokenizers.TEXTS, "<|im_start|>x<|endoftext|>", ""]
    expected = own(texts, add_special_tokens=False)["input_ids"]
    for settings, uses_kernels in (({}, True), ({"split_special_tokens": True}, False)):
        stage = MegatronTokenizeStage(str(tmp_path / "model"), append_eod=True, transformers_init_kwargs=settings)
        found = stage.process(DocumentBatch("set", pa.table({"text": [*texts, None]}))).column(TOKENS).to_pylist()
        assert (stage._kernel() is not None) == uses_kernels
        if uses_kernels:
            assert found == [[*ids, own.eos_token_id] for ids in [*expected, []]]
        else:
            assert found[:3] == [[*ids, own.eos_token_id] for ids in expected[:3]]
            assert found[-3] != [*expected[-2], own.eos_token_id]  # the marks are text
