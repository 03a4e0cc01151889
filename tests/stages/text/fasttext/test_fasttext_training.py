"""Training a fastText classifier: against the slow way, the same bytes every time, and what it is worth."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.cli.models.train_classifier import check_model_path
from tamis.cli.models.train_classifier import train_classifier as train_command
from tamis.errors import UsageError
from tamis.stages.text.classifiers import FastTextClassifier
from tamis.stages.text.fasttext.model import FastTextModel
from tamis.stages.text.fasttext.training import TrainingOptions, train_classifier
from tamis.tasks import DocumentBatch
from tests.stages.text.fasttext.fasttext_twin import SOFTMAX, Twin

SPORT = ["goal", "match", "team", "player", "season", "league", "coach", "score", "win", "cup"]
MONEY = ["market", "shares", "stock", "bank", "profit", "price", "trade", "growth", "fund", "rate"]
COMMON = ["the", "a", "of", "in", "and", "to", "for", "with", "on", "at"]


def labelled(n: int = 400, seed: int = 0) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    texts, labels = [], []
    for i in range(n):
        words = (SPORT, MONEY)[i % 2]
        texts.append(" ".join(rng.choice(words if rng.random() < 0.2 else COMMON) for _ in range(rng.randint(5, 40))))
        labels.append(("sports news", "money")[i % 2])
    return texts, labels


def column(texts: list[Any]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def parsed(made: bytes, path: Path) -> tuple[FastTextModel, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Parse a model file, and return the model with its matrices."""
    path.write_bytes(made)
    model = FastTextModel.load(path)
    file, dim = model._file, int(model._file.shape[0])

    def matrix(places: Any) -> np.ndarray[Any, Any]:
        begin, n = int(places[2]), int(places[1])
        return np.frombuffer(made[begin : begin + 4 * n * dim], "<f4").reshape(n, dim)

    return model, matrix(file.inputs), matrix(file.outputs)


def slow_training(twin: Twin, texts: list[str], targets: list[int], options: TrainingOptions, seed: int) -> None:
    """Train by hand, one text at a time, in the order that the options' seed gives."""
    rng = np.random.default_rng(seed)
    n = len(twin.words) + (options.buckets if options.word_ngrams > 1 else 0)
    twin.inputs = rng.uniform(-1 / options.dim, 1 / options.dim, n * options.dim).astype(np.float32).reshape(n, -1)
    twin.outputs = np.zeros((len(twin.labels), options.dim), np.float32)
    for epoch in range(options.epochs):
        order = rng.permutation(len(texts))
        first, last = (options.rate * (1 - e / options.epochs) for e in (epoch, epoch + 1))
        for k, i in enumerate(order.tolist()):
            rows = twin.rows_of(texts[i])
            hidden = twin.inputs[rows].mean(0)
            scores = np.exp(twin.outputs @ hidden - (twin.outputs @ hidden).max())
            step = (first + (last - first) * k / len(texts)) * (
                np.eye(len(twin.labels))[targets[i]] - scores / scores.sum()
            )
            change = step @ twin.outputs / len(rows)
            twin.outputs += np.outer(step, hidden).astype(np.float32)
            np.add.at(twin.inputs, rows, change.astype(np.float32))


@pytest.mark.parametrize("word_ngrams", [1, 3])
def test_the_matrices_are_those_of_the_slow_way(tmp_path: Path, word_ngrams: int) -> None:
    texts, labels = labelled(40)
    texts[0], texts[1], texts[2] = "naïve café 漢字 \t\n 😀 __label__money goal", "", "one </s> two"
    options = TrainingOptions(dim=6, epochs=3, word_ngrams=word_ngrams, buckets=40, min_count=2, seed=3)
    model, inputs, outputs = parsed(train_classifier(column(texts), labels, options), tmp_path / "m.bin")
    names = [
        bytes(model._file.data[b : b + n]).decode()
        for b, n in zip(model._file.begins, model._file.lengths, strict=True)
    ]
    n_words = int(model._file.shape[1])
    twin = Twin(
        [(n, 1) for n in names[:n_words]],
        [(n, 1) for n in names[n_words:]],
        inputs,
        outputs,
        SOFTMAX,
        40,
        0,
        0,
        word_ngrams,
    )
    assert names[0] == "</s>"
    assert "goal" in names
    assert "naïve" not in names  # it stands there once
    slow_training(twin, texts, [names[n_words:].index(f"__label__{x}") for x in labels], options, seed=3)
    assert np.allclose(outputs, twin.outputs, atol=1e-4)
    assert np.allclose(inputs, twin.inputs[: len(inputs)], atol=1e-4)


def test_the_same_texts_give_the_same_bytes_and_other_seeds_others() -> None:
    texts, labels = labelled(60)
    options = TrainingOptions(dim=4, epochs=2, buckets=100)
    made = train_classifier(column(texts), labels, options)
    assert made == train_classifier(column(texts), labels, options)
    assert made != train_classifier(column(texts), labels, TrainingOptions(dim=4, epochs=2, buckets=100, seed=2))


def test_what_it_learned_is_reported_of_texts_it_has_not_seen(tmp_path: Path) -> None:
    losses: list[float] = []
    made = train_classifier(
        column(labelled(600)[0]), labelled(600)[1], TrainingOptions(buckets=2000), lambda _, loss: losses.append(loss)
    )
    assert losses == sorted(losses, reverse=True)
    model, _, _ = parsed(made, tmp_path / "m.bin")
    texts, labels = labelled(200, seed=9)
    found = [row[0].removeprefix("__label__") for row in model.predict(texts)[0]]
    assert sum(a == b for a, b in zip(found, labels, strict=True)) > 185


def test_the_stage_gives_labels_scores_and_nulls(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(
        train_classifier(column(labelled()[0]), labelled()[1], TrainingOptions(buckets=500))
    )
    texts = ["the goal of the team", "shares of the bank", None, "", "😀\x00"]
    batch = DocumentBatch("t", pa.table({"text": column(texts)}))
    (stage,) = FastTextClassifier(str(tmp_path / "m.bin"), score_field="p").decompose()
    made = stage.process(batch).to_pyarrow()
    assert made["text"].to_pylist() == texts
    assert made["label"].to_pylist()[:3] == ["sports news", "money", None]
    chances = made["p"].to_pylist()
    assert [c if c is None else max(c, key=c.get) for c in chances] == made["label"].to_pylist()
    assert all(abs(sum(c.values()) - 1) < 0.01 for c in chances if c is not None)
    (one,) = FastTextClassifier(str(tmp_path / "m.bin"), score_field="p", score_label="money").decompose()
    assert one.process(batch).to_pyarrow()["p"].to_pylist() == [c and c["money"] for c in chances]
    with pytest.raises(UsageError, match="score_field"):
        FastTextClassifier(str(tmp_path / "m.bin"), score_label="money")
    stages = FastTextClassifier(str(tmp_path / "m.bin"), filter_by=["money"]).decompose()
    kept = stages[1].process(stages[0].process(batch)).to_pyarrow()["text"].to_pylist()
    assert "shares of the bank" in kept
    assert None not in kept
    assert "the goal of the team" not in kept
    wrong = FastTextClassifier(str(tmp_path / "m.bin"), filter_by=["money", "sport"]).decompose()[0]
    for _ in range(2):
        with pytest.raises(UsageError, match=r"has no label 'sport'; expected some of .*'sports news'"):
            wrong.setup()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a"] * 40, "at least two labels, got ..a.."),
        (["a", "b\0"] * 20, "without the character NUL"),
        (["a", ""] * 20, "not empty"),
    ],
)
def test_labels_that_cannot_be_learned(labels: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        train_classifier(column(labelled(40)[0]), labels, TrainingOptions())


@pytest.mark.parametrize("wrong", [{"dim": 0}, {"epochs": 0}, {"rate": 0.0}, {"word_ngrams": 11}, {"buckets": True}])
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        TrainingOptions(**wrong)


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"is not a file; expected a fastText model"):
        FastTextClassifier("/no/such/model.bin")


def test_a_model_takes_the_place_of_nothing_else(tmp_path: Path) -> None:
    labelled_file = tmp_path / "labelled.jsonl"
    labelled_file.write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n')
    (tmp_path / "link.bin").symlink_to(labelled_file)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "model.bin").write_bytes(b"\xba\x16\x4f\x2f and the rest")
    source = str(tmp_path / "*.jsonl")
    for output, words in (
        ("labelled.jsonl", "is one of the labelled files"),
        ("link.bin", "is one of the labelled files"),
        ("notes.txt", "exists and is no model of this kind"),
        (".", "exists and is no model of this kind"),
        ("model.bin", "this model exists; name another file, or add --replace"),
        ("nodir/m.bin", "there is no folder"),
    ):
        with pytest.raises(UsageError, match=words):
            check_model_path(str(tmp_path / output), source, False)
    check_model_path(str(tmp_path / "model.bin"), source, True)
    check_model_path(str(tmp_path / "new.bin"), source, False)
    with pytest.raises(UsageError, match="is one of the labelled files"):
        train_command(source, str(labelled_file), replace=True)
    assert labelled_file.read_text().startswith('{"text": "a"')


def test_from_labelled_documents_to_labels_on_the_command_line(tmp_path: Path) -> None:
    texts, labels = labelled(300)
    rows = [{"text": t, "label": x} for t, x in zip(texts, labels, strict=True)] + [
        {"text": None, "label": "money"},
        {"text": "x"},
    ]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))

    def tamis(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tamis.cli.start", *args], cwd=tmp_path, capture_output=True, text=True, timeout=110
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = json.loads(tamis("train-classifier", "labelled.jsonl", "-o", "model.bin", "--buckets", "1000", "--json"))
    assert told["n_trained"] + told["n_tried"] == 300
    assert told["accuracy"] > 0.9
    assert sorted(told["labels"]) == ["money", "sports news"]
    tamis("classify", "model.bin", "labelled.jsonl", "out", "--label-field", "found", "--memory", "1GB", "--quiet")
    made = [json.loads(line) for p in sorted((tmp_path / "out").glob("*.jsonl")) for line in p.read_text().splitlines()]
    assert len(made) == 302
    assert sum(r.get("found") == r["label"] for r in made[:300]) > 280
    assert "found" not in made[300]


def test_the_commands_train_and_classify(tmp_path: Path) -> None:
    texts, labels = labelled()
    rows = [json.dumps({"text": t, "label": own}) + "\n" for t, own in zip(texts, labels, strict=True)]
    (tmp_path / "in.jsonl").write_text("".join(rows))

    def tamis(*arguments: str) -> str:
        command = [sys.executable, "-m", "tamis.cli.start", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    about = json.loads(tamis("train-classifier", "in.jsonl", "-o", "quality", "--json"))
    assert (about["model"], (tmp_path / "quality.bin").exists()) == ("quality.bin", True)
    printed = tamis("train-classifier", "in.jsonl", "-o", "quality.bin", "--replace")
    assert printed.index("recall") < printed.index("quality.bin")
    scores = ("--score-field", "p", "--score-label", "money", "--format", "parquet")
    tamis("classify", "quality.bin", "in.jsonl", "out", *scores, "--memory", "1GB", "-q")
    (path,) = (tmp_path / "out").glob("*.parquet")
    table = pq.read_table(path).to_pydict()
    assert all((p > 0.5) == (own == "money") for p, own in zip(table["p"], table["label"], strict=True))
