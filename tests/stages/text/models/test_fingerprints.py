"""Fingerprints of single files that results depend on."""

from __future__ import annotations

from pathlib import Path

from tamis.stages.text.models.fingerprints import of_file, of_tokenizer, together


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


def test_a_tokenizer_is_none_of_the_weights_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    before = of_tokenizer(str(tmp_path), {})
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert of_tokenizer(str(tmp_path), {}) == before
    (tmp_path / "tokenizer.json").write_text("[]")
    assert of_tokenizer(str(tmp_path), {}) not in (before, None)
    assert of_tokenizer(str(tmp_path / "none"), {}) is None
    assert of_tokenizer("owner/name", {"revision": "a1b2"}) == ""


def test_several_are_told_only_where_all_are_known() -> None:
    assert (together(["a", "", "b"]), together([]), together(["a", None])) == ("a b", "", "")
