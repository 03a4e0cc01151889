"""After the last pass: files of the asked size, splits and order, and the dataset card.

The files of the last pass stay until everything is written and noted in curation.json; a call that is killed anywhere before goes on with them.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from tamis import files
from tamis.curation.card import MARK, make_card
from tamis.dedup.planning import solver_room
from tamis.dedup.progress_files import read_json
from tamis.errors import RunConflict
from tamis.stages.text.filters.fasttext import FastTextLangId
from tamis.stages.text.filters.score_filter import ScoreFilter
from tamis.stores.s3 import Bucket
from tamis.stores.urls import is_bucket, split_s3

if TYPE_CHECKING:
    from tamis.curation.curation import Curation
    from tamis.curation.runner import CurationRun

CARD = "README.md"


def finish_output(run: CurationRun, written: Any) -> dict[str, list[str]]:
    """Write what is to be there in the end. Returns the names of what was made beside the files of the last pass, and of those
    of them that are replaced by it."""
    made: dict[str, list[str]] = {"files": [], "replaced": []}
    parts = [str(f["name"]) for f in written.files]
    if run.curation.writing.is_packed:
        packed = _pack(run, parts)
        made = {"files": [str(p["name"]) for p in packed], "replaced": parts}
        splits = _splits(packed)
    else:
        sizes = [int(f["bytes"]) for f in written.files]
        pattern = f"part-*.{run.curation.extension}"
        splits = (
            [{"name": "train", "path": pattern, "rows": written.ledger.written.n, "bytes": sum(sizes)}] if parts else []
        )
    if run.curation.writing.card:
        _write_card(run, written, splits)
        made["files"].append(CARD)
    return made


def tidy_output(output: str, made: dict[str, list[str]]) -> None:
    """Remove the files of the last pass that others replace."""
    for name in made.get("replaced", []):
        files.remove(os.path.join(output, _own(name)))


def forget_output(output: str, made: dict[str, list[str]] | None, work: str) -> None:
    """To start over: remove what was made beside the files of the last pass. `made`: None where nobody noted it, because the call was killed."""
    if made is None:
        packed = read_json(os.path.join(work, "pack", "packed.json")) or []
        made = {"files": [str(p["name"]) for p in packed] + ([CARD] if is_own_card(os.path.join(output, CARD)) else [])}
    for name in made.get("files", []):
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


# -- packing --------------------------------------------------------------------------------------------------------------
def _pack(run: CurationRun, parts: list[str]) -> list[dict[str, Any]]:
    """Files of the asked kind, in the output under their names."""
    folder = os.path.join(run.work, "pack")
    files.own_folder(folder, "start over with fresh (--fresh)")
    packed: list[dict[str, Any]] | None = read_json(os.path.join(folder, "packed.json"))
    if packed is None:
        _call_packer(run, folder, parts)
        packed = read_json(os.path.join(folder, "packed.json")) or []
    for about in packed:
        final = os.path.join(run.home, _own(str(about["name"])))
        if os.path.exists(about["path"]):
            files.move(about["path"], final)
        elif not os.path.exists(final):
            raise RunConflict(f"{final} was made by this curation and is gone; start over with fresh (--fresh)")
    return packed


def _call_packer(run: CurationRun, folder: str, parts: list[str]) -> None:
    writing, began_s = run.curation.writing, time.monotonic()
    task = {
        "parts": [os.path.join(run.output, name) for name in parts], "text_field": run.curation.text_field, "extension": run.curation.extension,
        "shard_bytes": writing.shard_bytes, "split": writing.split, "shuffle": writing.shuffle,
        "room_bytes": solver_room(run.budget_bytes()),
    }  # fmt: skip
    run.do_apart(folder, task, lambda state: run.progress({**state, "pass": "packing"}), "tamis.curation.packer")
    packed = read_json(os.path.join(folder, "packed.json")) or []
    took = {
        "name": "packing", "seconds": round(time.monotonic() - began_s, 3),
        "read_bytes": sum(os.path.getsize(os.path.join(run.output, name)) for name in parts),
        "written_bytes": sum(p["bytes"] for p in packed), "documents": sum(p["rows"] for p in packed),
    }  # fmt: skip
    run.took.append(took)


def _splits(packed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for about in packed:
        name = str(about["split"])
        extension = str(about["name"]).partition(".")[2]
        split = found.setdefault(name, {"name": name, "path": f"{name}-*.{extension}", "rows": 0, "bytes": 0})
        split["rows"] += about["rows"]
        split["bytes"] += about["bytes"]
    return list(found.values())


# -- the card -------------------------------------------------------------------------------------------------------------
def _write_card(run: CurationRun, written: Any, splits: list[dict[str, Any]]) -> None:
    path = os.path.join(run.home, CARD)
    rules = (read_json(os.path.join(run.run_dir, "plan.json")) or {}).get("rules") or []
    text = make_card(run.curation.name, written.ledger, rules, splits, _language(run.curation))
    files.write_text(path, text + "\n")
    if is_bucket(run.output):
        name, prefix = split_s3(run.output)
        Bucket(name).put(f"{prefix}/{CARD}", (text + "\n").encode())


def drop_card(output: str) -> None:
    """To start over: remove the card of an output in a bucket, if a curation wrote it."""
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
            found = [f.lang for f in step._objects() if isinstance(f, FastTextLangId) and f.lang]
            if found:
                return str(found[0])
    return None
