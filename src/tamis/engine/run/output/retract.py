"""Taking back a sampling step that cannot be finished, so that what is delivered is a sample and not a sample and a bit.

An empty file named after the step says so first (an empty one, for the disk may be full); then the step's files go, then its lines
in the commit log, then the empty file. A crash in between is made good when the run directory is read the next time.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from tamis import files
from tamis.engine.run.output.names import folder_of

if TYPE_CHECKING:
    from tamis.engine.run.output.directory import RunDir

_MARK = re.compile(r"retract-([0-9]{1,6})")


def retract(folder: RunDir, step: int) -> None:
    """Make it as if nothing of the step had been committed. Only while nobody commits."""
    os.close(files.open_to_append(os.path.join(folder.path, f"retract-{step}")))
    files.sync_folder(folder.path)
    finish_retracting(folder)


def finish_retracting(folder: RunDir) -> None:
    """Do what is left to do of steps to be taken back; nothing, if there are none."""
    for name in os.listdir(folder.path):
        if (found := _MARK.fullmatch(name)) is not None:
            _take_back(folder, int(found[1]))
            files.remove(os.path.join(folder.path, name))


def _take_back(folder: RunDir, step: int) -> None:
    if folder.remote is not None:
        of_step = [f for r in folder.log.read() if _is_of(r, step) for f in r["files"] if f["kind"] == "output"]
        folder.remote.retract(step, [f["name"] for f in of_step])
    for record in folder.log.read():
        if _is_of(record, step):
            for file in record["files"]:
                if file["kind"] != "listed":
                    place = folder.output if file["kind"] == "output" else folder_of(file["kind"], folder.quarantine)
                    files.remove(os.path.join(place, folder.own_name(file["name"])))
    folder.log.rewrite(record for record in folder.log.read() if not _is_of(record, step))


def _is_of(record: dict[str, Any], step: int) -> bool:
    return bool(record["t"] == "commit" and int(record["step"]) == step)
