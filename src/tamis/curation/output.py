"""After the last pass: files of the requested size, splits and order, and the dataset card.

The files of the last pass stay until everything is written and recorded in curation.json; a call that is killed before
resumes with them.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tamis import files
from tamis.curation.card import MARK, Provenance, Split, TokensOnCard, make_card
from tamis.curation.state import OutputFiles, PackedFile, PackedFiles, PackTask, TokenPackTask, packed_file
from tamis.dedup.planning import solver_room
from tamis.engine.schema import read_plan
from tamis.errors import RunConflict
from tamis.hints import command
from tamis.stages.text.filters.fasttext import FastTextLangId
from tamis.stages.text.filters.score_filter import ScoreFilter
from tamis.stages.text.tokens.options import NO_END, UNCOMPRESSED, TokenOptions
from tamis.stores.s3 import Bucket
from tamis.stores.urls import is_bucket, split_s3

if TYPE_CHECKING:
    from tamis.curation.curation import Curation
    from tamis.curation.runner import CurationRun
    from tamis.engine.run.run_result import RunResult

CARD = "README.md"
_MAX_FIRST = 4 << 20  # bytes of a first document that are looked at


def finish_output(run: CurationRun, written: RunResult) -> OutputFiles:
    """Pack the files of the last pass if requested, and write the card.

    Returns the names of files that were written or replaced.
    """
    names: list[str] = []
    replaced: list[str] = []
    numbers: dict[str, int] = {}
    parts = [f.name for f in written.files]
    if run.curation.writing.is_packed:
        packed = _pack(run, parts)
        names, replaced = [file.name for file in packed.files], parts
        splits = _splits(packed.files)
        numbers = packed.numbers
    else:
        sizes = [f.n_bytes or 0 for f in written.files]
        folders = "**/" if any("/" in name for name in parts) else ""
        pattern = f"{folders}part-*.{run.curation.extension}"
        splits = [Split("train", pattern, written.ledger.written.n, sum(sizes))] if parts else []
    if run.curation.writing.card:
        _write_card(run, written, splits, numbers)
        names.append(CARD)
    return OutputFiles(names, replaced, numbers)


def stored_bytes(home: str, written: RunResult, output_files: OutputFiles) -> int:
    """Return the bytes of the data files of an output, as they are stored."""
    if not output_files.replaced:
        return sum(file.n_bytes or 0 for file in written.files)
    paths = [os.path.join(home, _own(name)) for name in output_files.files if name != CARD]
    return sum(os.path.getsize(path) for path in paths if os.path.exists(path))


def tidy_output(output: str, output_files: OutputFiles) -> None:
    """Remove the files of the last pass that others replace."""
    for name in output_files.replaced:
        files.remove(os.path.join(output, _own(name)))


def forget_output(output: str, output_files: OutputFiles | None, work: str) -> None:
    """Remove the files next to those of the last pass, to start over.

    `output_files`: None where the call was killed before it recorded them.
    """
    if output_files is None:
        packed = packed_file(os.path.join(work, "pack")).read() or PackedFiles([])
        card = [CARD] if is_own_card(os.path.join(output, CARD)) else []
        output_files = OutputFiles([file.name for file in packed.files] + card)
    for name in output_files.files:
        files.remove(os.path.join(output, _own(name)))


def _own(name: str) -> str:
    """Return a recorded name, which must be a file of the output folder because it is going to be removed.

    Raise RunConflict otherwise.
    """
    if os.path.basename(name) != name or name in ("", os.curdir, os.pardir):
        raise RunConflict(
            f"curation.json names {name!r}, which is no file of this output; remove the folder and start over"
        )
    return name


# -- packing ----------------------------------------------------------------------------------------------------------
def _pack(run: CurationRun, parts: list[str]) -> PackedFiles:
    """Have the files packed, and move them into the output under their names."""
    folder = os.path.join(run.work_path, "pack")
    files.own_folder(folder, "start over with fresh (--fresh)")
    packed = packed_file(folder).read()
    if packed is None:
        packed = _call_packer(run, folder, parts)
    for file in packed.files:
        final = os.path.join(run.output.home, _own(file.name))
        if os.path.exists(file.path):
            files.move(file.path, final)
        elif not os.path.exists(final):
            raise RunConflict(f"{final} was made by this curation and is gone; start over with fresh (--fresh)")
    return packed


def _call_packer(run: CurationRun, folder: str, parts: list[str]) -> PackedFiles:
    writing = run.curation.writing
    paths = [os.path.join(run.output.path, name) for name in parts]
    if writing.tokens is not None:
        token_task = TokenPackTask(
            parts=paths,
            format=writing.tokens.format,
            is_compressed=writing.tokens.compression != UNCOMPRESSED,
            sequence_length=writing.tokens.sequence_length,
            packing=writing.tokens.packing,
            has_ends=writing.tokens.end_token != NO_END,
            file_bytes=writing.file_bytes,
            split=writing.split,
            shuffle=writing.shuffle,
            room_bytes=solver_room(run.settings.budget_bytes()),
        )
        run.runner.run_task(folder, token_task, "tamis.curation.token_packer", "packing")
        return packed_file(folder).read() or PackedFiles([])
    task = PackTask(
        parts=paths,
        text_field=run.curation.text_field,
        extension=run.curation.extension,
        file_bytes=writing.file_bytes,
        split=writing.split,
        shuffle=writing.shuffle,
        room_bytes=solver_room(run.settings.budget_bytes()),
    )
    run.runner.run_task(folder, task, "tamis.curation.packer", "packing")
    return packed_file(folder).read() or PackedFiles([])


def _splits(packed: list[PackedFile]) -> list[Split]:
    splits: dict[str, Split] = {}
    for file in packed:
        extension = file.name.partition(".")[2]
        split = splits.setdefault(file.split, Split(file.split, f"{file.split}-*.{extension}", 0, 0))
        split.rows += file.rows
        split.bytes += file.bytes
    return list(splits.values())


# -- the card ---------------------------------------------------------------------------------------------------------
def _write_card(run: CurationRun, written: RunResult, splits: list[Split], numbers: dict[str, int]) -> None:
    path = os.path.join(run.output.home, CARD)
    rules = read_plan(os.path.join(run.output.run_dir, "plan.json")).rules
    text = make_card(
        run.curation.name,
        written.ledger,
        rules,
        splits,
        _language(run.curation),
        written.duplicate_labels,
        [str(step) for step in run.curation.left_out],
        _tokens_of(run.curation.writing.tokens, numbers),
        _provenance(run, written),
    )
    files.write_text(path, text + "\n")
    if is_bucket(run.output.path):
        name, prefix = split_s3(run.output.path)
        Bucket(name).put(f"{prefix}/{CARD}", (text + "\n").encode())


def _tokens_of(options: TokenOptions | None, numbers: dict[str, int]) -> TokensOnCard | None:
    if options is None:
        return None
    is_loaded = options.format in ("parquet", "arrow")
    return TokensOnCard(options.tokenizer, options.sequence_length, numbers.get("padding", 0), is_loaded)


def _provenance(run: CurationRun, written: RunResult) -> Provenance:
    """Return where the data set comes from: its sources, the command that made it, the fields of a document."""
    from tamis import __version__

    paths = run.curation.file_list_paths()
    sources = [str(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    first = next((os.path.join(run.output.home, f.name) for f in written.files), "")
    count = run.curation.token_count()
    tokenizer = "" if count is None else os.path.basename(count.tokenizer.rstrip("/"))
    return Provenance(sources, _command(run.output.run_dir), __version__, _first_fields(first), tokenizer)


def _command(run_dir: str) -> str:
    """Return the command that made the output; "" if a program made it."""
    data = files.read_json(os.path.join(run_dir, "command.json"))
    job = data.get("job") if isinstance(data, dict) else None
    if not isinstance(job, dict) or not isinstance(job.get("recipe"), str):
        return ""
    recipe = job["recipe"]
    is_preset = os.path.dirname(recipe).endswith(os.path.join("recipe", "presets"))
    shown = os.path.basename(recipe).removesuffix(".yaml") if is_preset else os.path.basename(recipe)
    values = {**(job.get("values") or {}), **(job.get("overrides") or {})}
    places = [str(values.pop(name)) for name in ("input", "output") if name in values]
    sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    if len(places) == 2:
        return command("curate", *places, "--preset", shown, *sets).replace(" -- ", " ")
    return command("run", shown, *sets).replace(" -- ", " ")


def _first_fields(path: str) -> dict[str, str]:
    """Return names and types of the fields of the first document of a plain JSONL file; nothing of other files."""
    if not path.endswith(".jsonl"):
        return {}
    try:
        with open(path, "rb") as file:
            record = json.loads(file.readline(_MAX_FIRST))
    except (OSError, ValueError, RecursionError):
        return {}
    kinds = {str: "text", bool: "boolean", int: "number", float: "number", list: "list", dict: "object"}
    return {name: kinds.get(type(value), "") for name, value in record.items()} if isinstance(record, dict) else {}


def drop_card(output: str) -> None:
    """Remove the card of an output in a bucket before starting over, if a curation wrote it."""
    if is_bucket(output):
        name, prefix = split_s3(output)
        bucket, key = Bucket(name), f"{prefix}/{CARD}"
        if MARK.encode() in (bucket.get(key) or b""):
            bucket.delete(key)


def is_own_card(path: str) -> bool:
    """Return True if a README.md was written by a curation."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return MARK in file.read(1 << 16)
    except OSError:
        return False


def _language(curation: Curation) -> str | None:
    """Return the language that a step keeps, if it keeps a single one."""
    for step in curation.steps:
        if isinstance(step, ScoreFilter):
            languages = [f.lang for f in step._objects() if isinstance(f, FastTextLangId) and f.lang]
            if languages:
                return str(languages[0])
    return None
