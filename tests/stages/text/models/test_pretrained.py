"""Tokenizers and processors by transformers, without the code that a model may bring along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tamis.errors import UsageError
from tamis.stages.text.models.pretrained import from_pretrained

pytest.importorskip("transformers", reason="the extra `models` is not installed")


@pytest.mark.parametrize("name", ["processor_config.json", "preprocessor_config.json"])
def test_code_of_a_processor_is_refused_and_nobody_is_asked(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own"}))
    (tmp_path / name).write_text(json.dumps({"auto_map": {"AutoProcessor": "own.Own"}}))
    (tmp_path / "own.py").write_text("raise SystemExit('this must not run')")
    with pytest.raises(
        UsageError, match=r"a chat model: .* wants to run code of its own \(auto_map\), which is refused"
    ):
        from_pretrained("AutoProcessor", str(tmp_path), "a chat model", local_files_only=True)


def test_damaged_files_are_told_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UsageError, match=r"a chat model: .* cannot be loaded"):
        from_pretrained("AutoTokenizer", str(tmp_path), "a chat model", local_files_only=True)
