"""Tokenizers and processors by transformers, without the code that a model may bring along."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tamis.errors import UsageError
from tamis.formats.faults import is_memory_failure
from tamis.stages.text.models.folder import open_folder
from tamis.stages.text.models.pretrained import from_pretrained
from tamis.stages.text.models.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers", reason="the extra `models` is not installed")


@pytest.mark.parametrize("name", ["processor_config.json", "preprocessor_config.json"])
def test_code_of_a_processor_is_refused_and_nobody_is_asked(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own"}))
    (tmp_path / name).write_text(json.dumps({"auto_map": {"AutoProcessor": "own.Own"}}))
    (tmp_path / "own.py").write_text("raise SystemExit('this must not run')")
    with pytest.raises(
        UsageError,
        match=r"a chat model: .* wants to run code of its own \(auto_map\), which is refused; choose a model that does without$",
    ):
        from_pretrained("AutoProcessor", str(tmp_path), "a chat model", local_files_only=True)


def test_a_folder_is_refused_with_advice_that_its_user_can_follow(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    (tmp_path / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "own.Own"}}))
    save_file({"a": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"which is refused; choose a model that does without$"):
        open_folder(tmp_path)
    with pytest.raises(UsageError, match=r"ask for it with trust_remote_code=True \(--trust-remote-code\)$"):
        open_folder(tmp_path, trust_remote_code=False)
    assert open_folder(tmp_path, trust_remote_code=True).path == tmp_path


def test_a_failed_allocation_is_no_fault_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fails)
    (tmp_path / "config.json").write_text("{}")
    for load in (lambda: from_pretrained("AutoTokenizer", str(tmp_path), "a filter"), lambda: Tokenizer(tmp_path)):
        with pytest.raises(OSError, match="Cannot allocate memory") as found:
            load()
        assert is_memory_failure(found.value)


def test_damaged_files_are_told_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UsageError, match=r"a chat model: .* cannot be loaded"):
        from_pretrained("AutoTokenizer", str(tmp_path), "a chat model", local_files_only=True)
