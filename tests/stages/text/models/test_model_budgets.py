"""Model folders under small budgets: a run's processes stay within the budget, or it is refused with a number."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import UsageError
from tamis.stages.text.models.folder import read_json, weight_bytes
from tamis.stages.text.models.tokenizer import LEAST_PER_BYTE, TokenizerStage
from tests.stages.text.models import small_models as small
from tests.support.command import SRC
from tests.support.outside import measured

MB = 1_000_000
BUDGETS_MB = (300, 700)
REFUSED = re.compile(r"a memory budget of .* is too small: .* the smallest that (may work|works here) is \d+MB")


def test_what_a_tokenizer_takes_is_reported_by_its_files(tmp_path: Path) -> None:
    stage = TokenizerStage(str(tmp_path))
    assert stage.least_bytes() == 0
    (tmp_path / "vocab.txt").write_bytes(b"x" * 100)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 7000)
    assert stage.least_bytes() == 100 * LEAST_PER_BYTE
    (tmp_path / "tokenizer.json").write_bytes(b"x" * 1000)  # which is loaded instead
    assert stage.least_bytes() == 1000 * LEAST_PER_BYTE
    assert weight_bytes(tmp_path) == 7000
    assert TokenizerStage("/no/such/folder").least_bytes() == 0


def test_configurations_that_are_none_are_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": "' + "x" * (5 << 20) + '"}')
    with pytest.raises(UsageError, match=r"config.json is larger than 4 MiB"):
        read_json(tmp_path / "config.json")


# -- torture: real folders, real runs ---------------------------------------------------------------------------------
def added_tokens(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tokenizer["added_tokens"] += [{"id": 500 + i, "content": f"<extra_{i}>", **flags} for i in range(300_000)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def _save_words(folder: Path, model: Any, pre_tokenizer: Any) -> None:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    own = Tokenizer(model)
    own.pre_tokenizer = pre_tokenizer
    PreTrainedTokenizerFast(tokenizer_object=own, unk_token="[UNK]", model_max_length=128).save_pretrained(folder)


def huge_vocabulary(folder: Path) -> None:
    from tokenizers import models, pre_tokenizers

    words = {"[UNK]": 0, **{f"word{i}": i + 1 for i in range(1_000_000)}}
    _save_words(folder, models.WordPiece(words, unk_token="[UNK]"), pre_tokenizers.BertPreTokenizer())


def unigram(folder: Path) -> None:
    """As SentencePiece models are saved by the library tokenizers."""
    from tokenizers import models, pre_tokenizers

    pieces = [("[UNK]", 0.0), *((f"\u2581word{i}", -10.0 - i / 1e6) for i in range(500_000))]
    _save_words(folder, models.Unigram(pieces, 0), pre_tokenizers.Metaspace())


def sentencepiece(folder: Path) -> None:
    """Write a .model file alone, which transformers converts."""
    library = pytest.importorskip("sentencepiece", reason="the extra `sentencepiece` is not installed")
    text = folder / "text"
    text.write_text("\n".join(f"{a} {b} {a}{b}" for a in small.WORDS for b in small.WORDS))
    library.SentencePieceTrainer.train(input=str(text), model_prefix=str(folder / "spiece"), vocab_size=300)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')


def large_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "more": [[]] * 15_000_000}))


def large_tokenizer_config(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "more": [[]] * 15_000_000}))


def large_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    weights = {f"layer.{i}.weight": "part.safetensors" for i in range(1_000_000)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))


def large_header(folder: Path) -> None:
    header = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(1_000_000)}
    header["last"] = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\0\0\0\0")


def large_weights(folder: Path) -> None:
    import torch
    import transformers

    config = transformers.BertConfig(**{**small.BERT, "vocab_size": 3_000_000})
    config.num_labels = 3
    with torch.no_grad():
        transformers.BertForSequenceClassification(config).save_pretrained(folder)


FOLDERS = [
    added_tokens,
    huge_vocabulary,
    unigram,
    sentencepiece,
    large_config,
    large_tokenizer_config,
    large_index,
    large_header,
    large_weights,
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("spoil", FOLDERS, ids=lambda spoil: spoil.__name__)
def test_whatever_a_model_folder_holds_the_budget_is_kept(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    pytest.importorskip("torch", reason="the extra `models` is not installed")
    folder = small.sequence_classifier(tmp_path / "model")
    spoil(folder)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in small.texts(50)))
    for budget_mb in BUDGETS_MB:
        out = tmp_path / f"out{budget_mb}"
        command = [
            sys.executable,
            "-m",
            "tamis.cli.start",
            "classify",
            str(folder),
            str(tmp_path / "in.jsonl"),
            str(out),
        ]
        seen = measured(
            [*command, "--memory", f"{budget_mb}MB"], PYTHONPATH=os.pathsep.join([str(SRC), *sys.path]), timeout_s=90
        )
        said = " ".join(seen.output.split())
        assert seen.peak_bytes <= budget_mb * MB, (budget_mb, said)
        if seen.status == 0:
            assert sum(len(p.read_text().splitlines()) for p in out.glob("*.jsonl")) == 50
        else:  # too small, or the folder is none: before any document
            assert seen.status == 2 or (seen.status == 4 and REFUSED.search(said)), (budget_mb, seen.status, said)
            assert not list(out.glob("*.jsonl"))
