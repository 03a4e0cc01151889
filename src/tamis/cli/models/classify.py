"""`tamis classify MODEL IN OUT`: a classifier over files, without writing a recipe.

MODEL is the name of a known classifier (`tamis classify --list`), a hub id, the folder of a model, or a fastText model
file.
"""

from __future__ import annotations

import os
from typing import Annotated

from tamis.cli.parsing import options
from tamis.cli.parsing.arguments import Argument, CommandExit, Option
from tamis.errors import UsageError, check_choice


def classify(
    model: Annotated[
        str | None,
        Argument(
            metavar="MODEL",
            help="A known classifier (--list shows them), a Hugging Face id, the folder of a model, or a fastText "
            "model (.bin, .ftz).",
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
        str | None,
        Option(help="A field for probabilities: of all labels, or of the one that --score-label names. Default: none."),
    ] = None,
    score_label: Annotated[
        str | None, Option(metavar="LABEL", help="The label whose probability the --score-field gets.")
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
    format_: Annotated[
        str | None,
        Option(
            "--format",
            metavar="NAME",
            help="Format of the output: parquet, arrow, jsonl, jsonl.zst, jsonl.gz, ... Default: that of the input.",
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool, Option("--trust-remote-code", help="Allow the Python code in the model's folder to run.")
    ] = False,
    list_: Annotated[bool, Option("--list", help="Show the known classifiers, and stop.")] = False,
    *,
    work: options.OnePassOptions,
) -> None:
    """Add a label to each document with a classifier, on a GPU if there is one, otherwise on the CPU.

    Weights are loaded from safetensors only. The output has the format of the input, or that of --format. If it is
    interrupted, run the same command again: it continues where it stopped.

    Example: tamis classify quality data/ labelled/ --memory 4GB
    """
    if list_:
        _print_list()
        return
    if model is None or source is None or target is None:
        raise UsageError(
            "expected MODEL IN OUT, e.g. tamis classify quality data/ labelled/; tamis classify --list shows the "
            "known ones"
        )
    from tamis.cli.jobs.jobs import ClassifyJob, Consent, location
    from tamis.cli.jobs.request import Request
    from tamis.cli.jobs.run import perform
    from tamis.stages.text.io.formats import file_types

    if format_ is not None:
        check_choice("--format", format_, file_types())
    job = ClassifyJob(
        _absolute(model),
        location(source),
        location(target),
        label_field,
        score_field,
        score_label,
        None if keep is None else tuple(label.strip() for label in keep.split(",")),
        text_field,
        max_tokens,
        None if model_folder is None else _absolute(model_folder),
        trust_remote_code,
        format_,
    )
    consent = Consent(trust_remote_code=trust_remote_code)
    raise CommandExit(perform(Request(job, work.settings, work.launch, consent)))


def _absolute(model: str) -> str:
    """Return the full path of a model on this machine, so that the run can be resumed from anywhere.

    Another name unchanged.
    """
    from tamis.cli.jobs.jobs import known_classifiers

    path = os.path.abspath(os.path.expanduser(model))
    return path if model not in known_classifiers() and os.path.exists(path) else model


def _print_list() -> None:
    from tamis.cli.jobs.jobs import known_classifiers
    from tamis.cli.terminal.show import print_table

    rows = []
    for name, classifier in known_classifiers().items():
        stage = classifier()
        about = (classifier.__doc__ or "").strip().splitlines()[0]
        rows.append((name, stage.model_identifier, ", ".join(stage.output_columns()[:3]), about))
    print_table("Known classifiers", ["name", "model", "fields", "what it says"], rows)
