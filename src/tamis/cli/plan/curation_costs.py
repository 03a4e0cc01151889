"""What each pass of a curation will cost: bytes read and written, what it holds, seconds. From the sizes of the input and the shipped table of rates; pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.curation.planner import EXACT, FUZZY, LINES, SEMANTIC
from tamis.forecast import shipped_table
from tamis.sizes import format_size

if TYPE_CHECKING:
    from tamis.cli.plan.command import Dataset
    from tamis.cli.plan.machine import Machine
    from tamis.curation import Curation
    from tamis.curation.planner import CurationPlan

_KEYS = {EXACT: "tamis.dedup.exact.", FUZZY: "tamis.dedup.fuzzy.", LINES: "tamis.dedup.", SEMANTIC: "tamis.dedup."}
_READER, _WRITER = "tamis.stages.text.io.reader.", "tamis.stages.text.io.writer."
_NUMBER_BYTES = 24  # of each document, where sources have max_documents
_TEXT_SHARE = 0.05  # of the texts, which are compressed, where candidates are compared


@dataclass(frozen=True)
class PassCost:
    """At most, where every document is left. `cpu_s`: of one core; `seconds`: on all of them. `held_bytes`: of memory, all processes of a node."""

    name: str
    read_bytes: int
    written_bytes: int
    held_bytes: int
    cpu_s: float
    seconds: float

    def told(self, where: Machine) -> str:
        each, nodes = (" on each node", f"{where.nodes:,} nodes of ") if where.nodes > 1 else ("", "")
        return (
            f"reads {format_size(self.read_bytes)}, writes at most {format_size(self.written_bytes)}, holds {format_size(self.held_bytes)}{each}, about "
            f"{self.seconds:,.1f} s on {nodes}{where.cores} cores"
        )


def imagined(sizes: Mapping[str, Any], asked: Dataset) -> dict[str, Any]:
    """What `Curation.sizes` tells, for as much data as is asked about: keys grow with the documents."""
    n = max(1, asked.decoded_bytes // max(1, asked.document_bytes or shipped_table.DOCUMENT_BYTES))
    keys = {name: n_bytes * n // max(1, int(sizes["n_documents"])) for name, n_bytes in sizes["key_bytes"].items()}
    return {**sizes, "n_files": 0, "input_bytes": asked.decoded_bytes, "n_documents": n, "key_bytes": keys}


def costs_of(
    curation: Curation, plan: CurationPlan, sizes: Mapping[str, Any], budget_bytes: int, where: Machine, asked: Dataset | None = None,
) -> list[PassCost]:  # fmt: skip
    """One entry per pass of the plan, for these machines. `asked`: data that is only imagined."""
    files, n_cores = curation.files(), where.cores
    decoded = shipped_table.decoded_bytes([os.fsdecode(p) for p in files.paths], files.sizes)
    decoded = asked.decoded_bytes if asked is not None else decoded
    kinds = {step.name: _class_of(step) for step in curation.steps}
    keys = iter(sizes["key_bytes"].values())
    groups = iter(plan.groups)
    found = []
    for one in plan.passes:
        names = [_READER, *(kinds[name] for name in (*one.runs, *one.redoes))]
        if one.name.startswith("keys for "):
            group = next(groups)
            names.append(_KEYS[curation.steps[group.decides[-1]].kind])  # type: ignore[union-attr]
            written = int(next(keys))
        elif one.name.startswith("texts for "):
            written = int(decoded * _TEXT_SHARE)
        elif one.name == "write":
            names.append(_WRITER)
            written = decoded
        else:
            written = int(sizes["n_documents"]) * _NUMBER_BYTES
        cpu_s = decoded * shipped_table.seconds_per_byte(names)
        held = min(
            budget_bytes,
            shipped_table.FIXED_BYTES + n_cores * (shipped_table.WORKER_BYTES + _partition_bytes(decoded, n_cores)),
        )
        found.append(
            PassCost(one.name, decoded, written, held, round(cpu_s, 2), round(cpu_s / n_cores / where.nodes, 2))
        )
    return found


def _partition_bytes(decoded: int, n_cores: int) -> int:
    """What a worker holds of its partition: text, columns and what stages make of them."""
    return 3 * min(32 << 20, max(1, decoded // max(1, n_cores)))


def _class_of(step: Any) -> str:
    if hasattr(step, "kind"):
        return _KEYS[step.kind]
    kind = type(step)
    return f"{kind.__module__}.{kind.__qualname__}"
