"""`tamis classify MODEL IN OUT`: a classifier over files, without writing a recipe.

MODEL is the name of a known classifier (`tamis classify --list`), a hub id, the folder of a model, or a fastText model file. As with `tamis filter`, the
command writes a recipe for itself and runs that.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from tamis import _satellites
from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, Exit, Option
from tamis.errors import UsageError

_RECIPE = "classify.yaml"
_OWN = "tamis.stages.text.classifiers"


def classify(
    model: Annotated[
        str | None,
        Argument(
            metavar="MODEL",
            help="A known classifier (--list shows them), a Hugging Face id, the folder of a model, or a fastText model (.bin, .ftz).",
        ),
    ] = None,
    source: Annotated[
        str | None, Argument(metavar="IN", help="A file, a folder or a glob of JSONL, Parquet or Arrow files.")
    ] = None,
    target: Annotated[
        str | None, Argument(metavar="OUT", help="The folder for the documents with their labels.")
    ] = None,
    label_field: Annotated[
        str | None, Option(help="The field for the label. Default: label, or what the known classifier calls it.")
    ] = None,
    score_field: Annotated[
        str | None, Option(help="A field for the probabilities of all labels. Default: none.")
    ] = None,
    keep: Annotated[
        str | None, Option(metavar="LABELS", help="Keep only documents with one of these labels, e.g. High,Medium.")
    ] = None,
    text_field: Annotated[str, Option(help="The field that holds the text.")] = "text",
    max_tokens: Annotated[
        int | None, Option(help="Read only so many tokens of each text. Default: as many as the model takes.")
    ] = None,
    model_folder: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="Folder with the model of a known classifier, if it is not in the Hugging Face cache.",
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool, Option("--trust-remote-code", help="Allow the Python code in the model's folder to run.")
    ] = False,
    list_: Annotated[bool, Option("--list", help="Show the known classifiers, and stop.")] = False,
    *,
    work: options.StagesOptions,
) -> None:
    """Add a label to each document with a classifier, on a GPU if there is one, otherwise on the CPU.

    Weights are loaded from safetensors only. The output has the format of the input. If it is interrupted, run the same command again: it continues where it stopped.

    Example: tamis classify quality data/ labelled/ --memory 4GB
    """
    if list_:
        _print_list()
        return
    if model is None or source is None or target is None:
        raise UsageError(
            "expected MODEL IN OUT, e.g. tamis classify quality data/ labelled/; tamis classify --list shows the known ones"
        )
    from tamis.cli.jobs.written_recipes import perform_text

    chosen = {
        "label_field": label_field, "score_field": score_field, "filter_by": None if keep is None else [label.strip() for label in keep.split(",")],
        "text_field": text_field, "max_seq_length": max_tokens, "trust_remote_code": trust_remote_code or None,
        "model_folder": model_folder,
    }  # fmt: skip
    recipe = make_recipe(model, source, target, {k: v for k, v in chosen.items() if v is not None})
    raise Exit(perform_text(recipe, _RECIPE, work, trust_remote_code))


def known() -> dict[str, Any]:
    """Classifiers by the name they have on the command line: QualityClassifier is `quality`.

    >>> sorted(known())[:4]
    ['aegis', 'content-type', 'domain', 'fineweb-edu']
    """
    classifiers = _satellites.load("models.classifiers")
    made = {}
    for name in classifiers.__all__:
        if name not in ("DistributedDataClassifier", "FastTextClassifier"):
            words = name.removesuffix("Classifier").replace("FineWeb", "Fineweb")
            made["".join("-" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(words))] = getattr(
                classifiers, name
            )
    return made


def make_recipe(model: str, source: str, target: str, chosen: dict[str, Any]) -> str:
    """Return the recipe of the command.

    Strings are written as JSON, which YAML reads unchanged.
    """
    from tamis.cli.jobs.written_recipes import around

    found = known().get(model)
    folder = chosen.pop("model_folder", None)
    if found is None and os.path.isfile(model):
        unknown = sorted({"max_seq_length", "trust_remote_code"} & set(chosen)) + (["model_folder"] if folder else [])
        if unknown:
            raise UsageError(f"--{unknown[0].replace('_', '-')} means nothing for the fastText model {model}")
        stage = f"{_OWN}.FastTextClassifier"
        chosen = {"model_path": os.path.abspath(model), **chosen}
    elif found is None:
        if folder is not None:
            raise UsageError(
                f"--model-folder is for a known classifier, and {model!r} is none; give the folder itself as MODEL"
            )
        stage = f"{_OWN}.DistributedDataClassifier"
        chosen = {"model_identifier": _place(model), "label_field": "label", **chosen}
    else:
        stage = f"{_OWN}.{found.__name__}"
        names = {f.name for f in fields(found)}
        where = "aegis_variant" if "aegis_variant" in names and "model_identifier" not in names else "model_identifier"
        chosen = {**({where: _place(folder)} if folder is not None else {}), **chosen}
        if unknown := sorted(set(chosen) - names):
            raise UsageError(
                f"--{unknown[0].replace('_', '-')} is nothing that {model!r} has; it writes fields of its own"
            )
    lines = [f"  - _target_: {stage}", *(f"    {name}: {json.dumps(value)}" for name, value in chosen.items())]
    return around(
        f"classify {Path(model).name}", source, target, lines, [v for v in chosen.values() if isinstance(v, str)]
    )


def _place(model: str) -> str:
    """Return the full path of a folder, so that the run can be resumed from anywhere; a hub id unchanged."""
    path = os.path.abspath(os.path.expanduser(model))
    return path if os.path.isdir(path) else model


def _print_list() -> None:
    from tamis.cli.terminal.show import print_table

    rows = []
    for name, made in known().items():
        stage = made()
        about = (made.__doc__ or "").strip().splitlines()[0]
        rows.append((name, stage.model_identifier, ", ".join(stage.output_columns()[:3]), about))
    print_table("Known classifiers", ["name", "model", "fields", "what it says"], rows)
