"""Fingerprints of single files that results depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tamis.engine.run.identity import is_same_model
from tamis.stages.fingerprints import joined, of_file
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.fasttext import FastTextQualityFilter
from tamis.stages.text.filters.token import TokenCountFilter
from tamis.stages.text.pretrained import tokenizer_fingerprint


def test_a_file_is_known_by_its_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"one")
    (tmp_path / "c").write_bytes(b"two")
    assert of_file(tmp_path / "a") == of_file(tmp_path / "b") != of_file(tmp_path / "c")
    assert of_file(tmp_path / "none") is None


def test_a_large_file_is_looked_at_from_end_to_end(tmp_path: Path) -> None:
    for name, end in (("a", b"x"), ("b", b"y")):
        with open(tmp_path / name, "wb") as file:
            file.truncate(9 << 20)
            file.seek(-1, 2)
            file.write(end)
    assert of_file(tmp_path / "a") != of_file(tmp_path / "b")


def test_a_tokenizer_is_none_of_the_weights_next_to_it(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    before = tokenizer_fingerprint(str(tmp_path), {})
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert tokenizer_fingerprint(str(tmp_path), {}) == before
    (tmp_path / "tokenizer.json").write_text("[]")
    assert tokenizer_fingerprint(str(tmp_path), {}) not in (before, None)
    assert tokenizer_fingerprint(str(tmp_path / "none"), {}) is None


@pytest.mark.parametrize("name", ["bpe.codes", "dict.txt", "source.spm", "normalizer.json", "entity_vocab.json"])
def test_files_of_tokenizers_by_all_their_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a")
    before = tokenizer_fingerprint(str(tmp_path), {})
    (tmp_path / name).write_text("b")
    assert None not in (before, tokenizer_fingerprint(str(tmp_path), {}))
    assert before != tokenizer_fingerprint(str(tmp_path), {})


def test_a_hub_id_is_known_by_the_files_of_its_revision(tmp_path: Path) -> None:
    for ref in ("main", "v1"):
        (tmp_path / "models--o--n" / "snapshots" / f"of-{ref}").mkdir(parents=True)
        (tmp_path / "models--o--n" / "snapshots" / f"of-{ref}" / "vocab.txt").write_text(ref)
        (tmp_path / "models--o--n" / "refs").mkdir(exist_ok=True)
        (tmp_path / "models--o--n" / "refs" / ref).write_text(f"of-{ref}")
    settings = {"cache_dir": str(tmp_path)}
    main, v1 = (tokenizer_fingerprint("o/n", {**settings, "revision": ref}) for ref in ("main", "v1"))
    assert main == tokenizer_fingerprint("o/n", settings) != v1
    assert None not in (main, v1)
    (tmp_path / "models--o--n" / "refs" / "main").write_text("of-v1")  # a branch moves
    assert tokenizer_fingerprint("o/n", {**settings, "revision": "main"}) == v1
    assert tokenizer_fingerprint("o/n", {**settings, "revision": "v2"}) is None


def test_one_that_is_not_known_yet_does_not_hide_the_others(tmp_path: Path) -> None:
    assert (joined(["a", "", "b"]), joined([]), joined(["a", ""])) == ("a++b", "", "a")
    (tmp_path / "m.bin").write_bytes(b"one")
    other = TokenCountFilter(hf_model_name="owner/name", transformers_init_kwargs={"cache_dir": str(tmp_path)})
    stage = ScoreFilter([FastTextQualityFilter(str(tmp_path / "m.bin")), other])
    before = stage.model_files()
    (tmp_path / "m.bin").write_bytes(b"two")
    assert not is_same_model(before, stage.model_files())
    (tmp_path / "m.bin").write_bytes(b"one")
    assert is_same_model(before, stage.model_files())
