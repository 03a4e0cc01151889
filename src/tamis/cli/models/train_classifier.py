"""`tamis train-classifier LABELLED -o MODEL`: a small, fast classifier from labelled documents, without a GPU."""

from __future__ import annotations

import hashlib
import os
from typing import Annotated, Any

from tamis.cli.parsing.arguments import Argument, Option, echo
from tamis.errors import UsageError
from tamis.sizes import format_size, parse_fraction


def train_classifier(
    source: Annotated[
        str, Argument(metavar="LABELLED", help="A file, a folder or a glob of JSONL, Parquet or Arrow files.")
    ],
    output: Annotated[str, Option("--output", "-o", metavar="MODEL", help="The model file to write (.bin).")],
    label_field: Annotated[str, Option(help="The field that holds the label, a text.")] = "label",
    text_field: Annotated[str, Option(help="The field that holds the text.")] = "text",
    epochs: Annotated[int, Option(help="Number of passes over the documents.")] = 5,
    rate: Annotated[float, Option(help="Learning rate at the start.")] = 0.5,
    dim: Annotated[int, Option(help="Size of the vector for each word.")] = 32,
    word_ngrams: Annotated[int, Option(help="Longest word sequence used as a feature.")] = 2,
    buckets: Annotated[int, Option(help="Number of hash buckets for word sequences.")] = 200_000,
    min_count: Annotated[
        int,
        Option(help="Words seen fewer times than this are ignored on their own; they count only in word sequences."),
    ] = 2,
    held_out: Annotated[
        str, Option(metavar="SHARE", help="Share of the documents kept back to measure accuracy; 0 for none.")
    ] = "10%",
    seed: Annotated[int, Option(help="Seed of the first weights and of the order of the documents.")] = 1,
    replace: Annotated[bool, Option("--replace", help="Replace a model that exists.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Train a classifier on labelled documents, and report its accuracy on some that were kept back.

    The model is fastText's: linear, over words and word sequences. It is trained on one core, and all documents are
    held in memory. The same documents and options give the same file. Use it with tamis classify MODEL IN OUT, or with
    FastTextClassifier.

    Example: tamis train-classifier labelled.jsonl -o quality.bin
    """
    import pyarrow as pa

    from tamis import files
    from tamis.stages.text.fasttext.training import TrainingOptions
    from tamis.stages.text.fasttext.training import train_classifier as train

    if not os.path.splitext(output)[1]:
        output += ".bin"
    check_model_path(output, source, replace)
    options = TrainingOptions(dim, epochs, rate, word_ngrams, buckets, min_count, seed)
    share = 0.0 if held_out in ("0", "0%", "0.0") else parse_fraction(held_out, "--held-out")
    texts, labels, n_left_out = _labelled(source, text_field, label_field)
    aside = [_position(t) < share for t in texts]
    indices = [i for i, out in enumerate(aside) if not out]
    tried = [i for i, out in enumerate(aside) if out]
    if not as_json:
        more = f", {n_left_out} without a text or a label are left out" if n_left_out else ""
        echo(f"{len(indices)} documents to learn from, {len(tried)} to try{more}")
    say = None if as_json else lambda epoch, loss: echo(f"epoch {epoch} of {epochs}: loss {loss:.4f}")
    model = train(pa.array([texts[i] for i in indices], pa.large_string()), [labels[i] for i in indices], options, say)
    files.write_bytes(os.path.abspath(output), model)
    figures = _try(output, [texts[i] for i in tried], [labels[i] for i in tried])
    _print_figures(
        {"model": output, "n_bytes": len(model), "n_trained": len(indices), "n_tried": len(tried), **figures}, as_json
    )


def check_model_path(output: str, source: str, replace: bool) -> None:
    """Refuse, before anything is learned, a path that cannot be written, or where something else exists."""
    from tamis.cli.jobs.request import file_source
    from tamis.engine.run.inputs import files_of
    from tamis.pipeline import Pipeline
    from tamis.stages.text.fasttext.training import is_model
    from tamis.stages.text.io.reader import DocumentReader

    path = os.path.abspath(output)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise UsageError(f"--output {output}: there is no folder {folder}; make it, or name another file")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--output {output}: {folder} cannot be written to; name another file")
    if not os.path.lexists(path):
        return
    stages = Pipeline("labelled documents", stages=[DocumentReader(source)]).build()
    inputs = files_of(file_source(stages, "train-classifier"), None)
    if os.path.realpath(path) in {os.path.realpath(p) for p in inputs.paths}:
        raise UsageError(f"--output {output} is one of the labelled files; name another file")
    if not is_model(path):
        raise UsageError(f"--output {output} exists and is no model of this kind; name another file, or remove it")
    if not replace:
        raise UsageError(f"--output {output}: this model exists; name another file, or add --replace")


def _labelled(source: str, text_field: str, label_field: str) -> tuple[list[str], list[str], int]:
    """Return the texts and labels of all documents that have both, and the number of those that have not."""
    from tamis.backends.local import InProcessExecutor
    from tamis.backends.slurm_array import ignoring_array
    from tamis.pipeline import Pipeline
    from tamis.stages.text.io.reader import DocumentReader

    with ignoring_array():
        batches: Any = Pipeline("labelled documents", stages=[DocumentReader(source)]).run(InProcessExecutor())
    texts: list[str] = []
    labels: list[str] = []
    n_left_out = 0
    for batch in batches or ():
        for text, label in zip(batch.texts(text_field).to_pylist(), batch.values(label_field), strict=True):
            if text is None or label is None:
                n_left_out += 1
                continue
            texts.append(text)
            labels.append(label if isinstance(label, str) else str(label))
    if not texts:
        raise UsageError(
            f"{source}: no document has both a text ({text_field!r}) and a label ({label_field!r}); there are "
            f"{n_left_out} documents"
        )
    return texts, labels, n_left_out


def _position(text: str) -> float:
    """Map a text to a position between 0 and 1, by its content."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") / 2.0**64


def _try(model: str, texts: list[str], labels: list[str]) -> dict[str, Any]:
    """Measure the accuracy on these texts, and the precision and recall of each label."""
    from tamis.stages.text.fasttext.model import FastTextModel
    from tamis.stages.text.fasttext.training import LABEL

    if not texts:
        return {"accuracy": None, "labels": {}}
    guessed, _ = FastTextModel.load(model).predict(texts)
    guesses = [row[0].removeprefix(LABEL) if row else "" for row in guessed]
    by_label = {}
    for label in sorted(set(labels)):
        both = sum(g == label == own for g, own in zip(guesses, labels, strict=True))
        by_label[label] = {
            "precision": round(both / max(1, guesses.count(label)), 4),
            "recall": round(both / labels.count(label), 4),
            "n": labels.count(label),
        }
    right = sum(g == own for g, own in zip(guesses, labels, strict=True))
    return {"accuracy": round(right / len(texts), 4), "labels": by_label}


def _print_figures(figures: dict[str, Any], as_json: bool) -> None:
    if as_json:
        import json

        echo(json.dumps(figures))
        return
    if figures["accuracy"] is not None:
        from tamis.cli.terminal.show import print_table

        rows = [
            (label, f"{counts['recall']:.1%}", f"{counts['precision']:.1%}", f"{counts['n']:,}")
            for label, counts in sorted(figures["labels"].items(), key=lambda item: item[1]["recall"])
        ]
        print_table("Documents that it had not seen", ["label", "recall", "precision", "n"], rows, right=(1, 2, 3))
        mean = sum(counts["recall"] for counts in figures["labels"].values()) / len(figures["labels"])
        echo(f"mean recall of the labels {mean:.1%}; {figures['accuracy']:.1%} of all get their label")
    echo(
        f"{figures['model']}: {format_size(figures['n_bytes'])}; use it with: tamis classify {figures['model']} IN OUT"
    )
