"""Uploads of outputs by workers: files become visible in the bucket once the run has committed them."""

from __future__ import annotations

import os
from dataclasses import replace

from tamis import files
from tamis.engine.messages import StagedFile
from tamis.engine.schema import FileKind
from tamis.engine.supervisor.units import Mode, Unit
from tamis.stores.s3 import Bucket
from tamis.stores.uploads import send
from tamis.stores.urls import split_s3


def send_outputs(staged: list[StagedFile], unit: Unit, url: str) -> list[StagedFile]:
    """Send the output files, delete them from this machine and return their descriptions.

    `name` and `upload` say what to complete.
    """
    bucket_name, prefix = split_s3(url)
    bucket, n_sent, sent = Bucket(bucket_name), 0, []
    for file in staged:
        if file.kind is not FileKind.OUTPUT:
            sent.append(file)
            continue
        n_sent += not (file.belongs and n_sent)  # what belongs to the file before it shares its name
        name = object_name(unit, file.extension, n_sent - 1)
        upload = send(bucket, f"{prefix}/{name}", file.path)
        files.remove(file.path)
        sent.append(replace(file, joins=False, name=name, upload=(upload.id, upload.mark, upload.parts)))
    return sent


def object_name(unit: Unit, extension: str, index: int) -> str:
    """Return a name that sorts in input order and that no other unit of the run has.

    A rewritten file is named after the one it replaces.
    """
    if unit.mode is Mode.REWRITE:
        assert unit.rewrite is not None
        if unit.rewrite.regroup is not None and unit.rewrite.regroup.names:
            return unit.rewrite.regroup.names[index]
        old = os.path.basename(unit.rewrite.paths[0]).removesuffix(f".{extension}")
        part = f".c{index}" if index else ""
        return f"{old.partition('.r-')[0]}{part}.r-{os.urandom(4).hex()}.{extension}"
    piece = unit.pieces[0]
    name = f"part-{piece.file:06d}-{piece.start:015d}"
    if unit.segment and unit.handover_rows[0]:
        name += f"-r{unit.handover_rows[0]}"
    if unit.step:
        name += f"-s{unit.step}"
    if index:
        name += f"-{index}"
    return f"{name}.{extension}"
