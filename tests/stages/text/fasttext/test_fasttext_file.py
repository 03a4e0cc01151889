"""The reader takes what fastText writes and refuses everything else with a FormatError."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import FormatError, UsageError
from tamis.kernels.text.fasttext_file import read_fasttext
from tamis.stages.text.fasttext.model import FastTextModel
from tests.stages.text.fasttext.fasttext_twin import HS, LABELS, SOFTMAX, Twin, fnv, random_twin

TEXTS = ["the naïve cat", "日本 être </s>", "", "x" * 100]


def small(**options: Any) -> Twin:
    """Build a file of about 1 kB, or 6 kB when quantised."""
    return random_twin(dim=2, bucket=8, **options)


def test_reads_sizes_and_labels(tmp_path: Path) -> None:
    file = read_fasttext(random_twin(loss=HS).save(tmp_path / "model.bin"))
    assert file.labels == tuple(name for name, _ in LABELS)
    assert file.shape.tolist() == [5, 5, 5, 50, 2, 4, 1, 1, -1]
    assert file.inputs[1] == 55
    assert file.outputs[1] == 5


def test_the_tree_joins_the_rarest_labels_first(tmp_path: Path) -> None:
    # Counts 30, 20, 7, 7, 1: nodes 5 = {4, 3}, 6 = {2, 5}, 7 = {6, 1}, 8 = {0, 7}.
    file = read_fasttext(random_twin(loss=HS).save(tmp_path / "model.bin"))
    assert file.tree.tolist() == [4, 3, 2, 5, 6, 1, 0, 7]


def test_one_label_is_a_tree_without_branches(tmp_path: Path) -> None:
    twin = small()
    twin.labels, twin.outputs = LABELS[:1], twin.outputs[:1]  # type: ignore[index]
    model = FastTextModel.load(twin.save(tmp_path / "model.bin"))
    assert model.predict(["the"]) == ([["__label__en"]], [[1.0]])


def test_version_11_has_no_character_ngrams(tmp_path: Path) -> None:
    twin = small()
    twin.changed = {"version": 11}
    assert read_fasttext(twin.save(tmp_path / "model.bin")).shape[5] == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"magic": 7}, "first four bytes: expected the number 793712314, got 7"),
        ({"version": 13}, "version: expected 11 or 12, got 13"),
        ({"model": 1}, r"kind of model: expected 3 \(supervised, with labels\), got 1"),
        ({"loss": 5}, "loss: expected 1 to 4, got 5"),
        ({"dim": 0}, "dim: expected more than 0, got 0"),
        ({"dim": 3}, "input matrix: expected rows of 3 numbers, got 13 rows of 2"),
        ({"word_ngrams": 2**31 - 1}, "wordNgrams: expected 1 to 100"),
        ({"maxn": 2**31 - 1}, "maxn: expected 0 to 100"),
        ({"minn": -1}, "minn: expected 0 to 100, got -1"),
        ({"bucket": 0}, "bucket: expected a number of hash buckets, got 0"),
        ({"bucket": 2**31 - 1}, "rows of the input matrix: expected at least 2147483652, got 13"),
        ({"n_labels": 0, "n_entries": 5}, "at least one label, got 5 = 5 [+] 0"),
        ({"n_words": -5, "n_entries": 0}, "at least one label, got 0 = -5 [+] 5"),
        ({"n_words": 2**31 - 9, "n_entries": 2**31 - 4}, "dictionary entries: expected at most"),
        ({"n_words": 4, "n_labels": 6}, "dictionary: expected 4 words, then 6 labels"),
        ({"n_pruned": -2}, "pruned buckets: expected -1 or more, got -2"),
        ({"n_pruned": 2**62}, "pruned buckets needs 36893488147419103232 bytes"),
        ({"n_pruned": 0}, "expected a quantised one, since words are pruned"),
    ],
)
def test_a_wrong_header_is_named(tmp_path: Path, changed: dict[str, int], message: str) -> None:
    twin = small()
    twin.changed = changed
    with pytest.raises(FormatError, match=message):
        read_fasttext(twin.save(tmp_path / "model.bin"))


def test_rows_must_fit_the_dictionary(tmp_path: Path) -> None:
    twin = small()
    twin.inputs = twin.inputs[:-1]  # type: ignore[index]
    with pytest.raises(FormatError, match="rows of the input matrix: expected at least 13, got 12"):
        read_fasttext(twin.save(tmp_path / "model.bin"))
    twin = small()
    twin.outputs = twin.outputs[:-1]  # type: ignore[index]
    with pytest.raises(FormatError, match=r"rows of the output matrix: expected 5 \(labels\), got 4"):
        read_fasttext(twin.save(tmp_path / "model.bin"))


@pytest.mark.parametrize("pair", [{99: 0}, {-1: 0}, {1: -1}])
def test_pruned_buckets_must_exist(tmp_path: Path, pair: dict[int, int]) -> None:
    twin = small(quantised=True, pruned=3)
    twin.pruned = pair
    with pytest.raises(FormatError, match="pruned buckets: expected buckets from 0 to 7 and rows from 0"):
        read_fasttext(twin.save(tmp_path / "model.ftz"))


def test_pruned_rows_must_exist(tmp_path: Path) -> None:
    twin = small(quantised=True, pruned=3)
    twin.pruned = {1: 3}
    with pytest.raises(FormatError, match="rows of the input matrix: expected at least 9, got 8"):
        read_fasttext(twin.save(tmp_path / "model.ftz"))


@pytest.mark.parametrize("count", [-1, 10**15, 2**63 - 1])
def test_label_counts_that_would_bend_the_tree(tmp_path: Path, count: int) -> None:
    twin = small(loss=HS)
    twin.labels = [*LABELS[:4], ("__label__nl", count)]
    with pytest.raises(FormatError, match="label counts: expected 0 or more, under 1e15 in all"):
        read_fasttext(twin.save(tmp_path / "model.bin"))
    twin.loss = SOFTMAX
    assert len(read_fasttext(twin.save(tmp_path / "model.bin")).labels) == 5


def test_a_label_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(small().to_bytes().replace(b"__label__ja", b"__label__\xff\xfe"))
    with pytest.raises(FormatError, match="a label is not UTF-8"):
        read_fasttext(path)


def test_rigged_hashes_do_not_take_quadratic_time(tmp_path: Path) -> None:
    words: list[tuple[str, int]] = []
    number = 0
    while len(words) < 400:  # all of them want the same slot
        if fnv(f"w{number}".encode()) & 0xFFF == 5:
            words.append((f"w{number}", 1))
        number += 1
    twin = small(maxn=0, minn=0)
    twin.words, twin.inputs = words, twin.inputs[:1].repeat(400, 0)  # type: ignore[index]
    with pytest.raises(FormatError, match="too many words of the dictionary share a hash"):
        read_fasttext(twin.save(tmp_path / "model.bin"))


def test_the_later_of_two_equal_words_counts(tmp_path: Path) -> None:
    twin = small(maxn=0, minn=0)
    twin.words = [("a", 1), ("b", 1), ("a", 1), ("c", 1), ("d", 1)]
    model = FastTextModel.load(twin.save(tmp_path / "model.bin"))
    assert model.predict(["a"])[1][0] == pytest.approx([twin.predict("a")[0][1]], abs=1e-6)


MODELS = {
    "dense": lambda: small(loss=HS),
    "quantised": lambda: small(loss=SOFTMAX, quantised=True, quantised_outputs=True, pruned=4),
}


@pytest.mark.parametrize("kind", MODELS)
def test_every_truncation_is_refused(tmp_path: Path, kind: str) -> None:
    whole = MODELS[kind]().to_bytes()
    path = tmp_path / "model.bin"
    for size in [*range(min(len(whole), 1200)), *range(1200, len(whole), 97), len(whole) - 1]:
        path.unlink(missing_ok=True)  # never shorten a file that is mapped
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError):
            read_fasttext(path)
    path.unlink()
    path.write_bytes(whole + b"\0")
    with pytest.raises(FormatError, match="end of the file"):
        read_fasttext(path)


@pytest.mark.parametrize("kind", MODELS)
def test_damaged_bytes_are_refused_or_harmless(tmp_path: Path, kind: str) -> None:
    whole = MODELS[kind]().to_bytes()
    rng = random.Random(kind)
    n_refused = 0
    for number in range(600):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(min(len(whole), 400))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        path = tmp_path / f"{number}.bin"
        path.write_bytes(damaged)
        try:
            FastTextModel.load(path).predict(TEXTS, k=-1)
        except FormatError:
            n_refused += 1
        path.unlink()
    assert 100 < n_refused < 600


def test_a_quantiser_that_does_not_fit_its_rows(tmp_path: Path) -> None:
    whole = random_twin(dim=4, quantised=True).to_bytes()
    path = tmp_path / "model.ftz"
    path.write_bytes(whole.replace(struct.pack("<4i", 4, 2, 2, 2), struct.pack("<4i", 4, 1, 2, 2)))
    with pytest.raises(FormatError, match="input matrix: quantiser: expected 4 numbers in parts, got 4 in 1 of 2, 2"):
        read_fasttext(path)


def test_a_path_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"cannot be read \(No such file or directory\); give the path of a .bin or .ftz"
    ):
        read_fasttext(tmp_path / "absent.bin")
    with pytest.raises(FormatError, match="empty or special"):
        read_fasttext(tmp_path)
