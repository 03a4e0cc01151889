"""Upper bounds of the costs of each pass of a curation, by the shipped table: bytes, memory, seconds.

What a step keeps on the disk for later passes is taken to have room there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tamis._dataclasses import dataclass
from tamis.curation.steps import CorpusStep
from tamis.forecast import shipped_table

if TYPE_CHECKING:
    from tamis.curation.curation import Curation
    from tamis.curation.result import CurationSizes

_READER, _WRITER = "tamis.stages.text.io.reader.", "tamis.stages.text.io.writer."
_NUMBER_BYTES = 24  # of each document, where sources have max_documents
_TEXT_SHARE = 0.05  # of the texts, which are compressed, where candidates are compared
_PARTITION_BYTES = 32 << 20
_HELD = 3  # what a worker holds of its partition: text, columns and what stages make of them


@dataclass(frozen=True)
class PassCost:
    """At most, where every document is left.

    `cpu_s`: of one core; `seconds`: on all of them. `held_bytes`: of memory, all processes of a node.
    """

    name: str
    read_bytes: int
    written_bytes: int
    held_bytes: int
    cpu_s: float
    seconds: float


def pass_costs(
    curation: Curation, sizes: CurationSizes, budget_bytes: int, n_workers: int, n_nodes: int = 1
) -> list[PassCost]:
    """Return one cost entry per pass of the plan. `n_workers`: of one node."""
    plan, decoded = curation.plan(), sizes["decoded_bytes"]
    held_bytes = shipped_table.WORKER_BYTES + _HELD * min(_PARTITION_BYTES, max(1, decoded // max(1, n_workers)))
    held_bytes = min(budget_bytes, shipped_table.FIXED_BYTES + n_workers * held_bytes)
    kinds = {step.name: _classes_of(step) for step in curation.steps}
    keys, groups = iter(sizes["key_bytes"].values()), iter(plan.groups)
    costs = []
    keeper = None if plan.text_keeper is None else curation.steps[plan.text_keeper].name
    for planned_pass in plan.passes:
        redone = (name for name in planned_pass.redoes if name != keeper)  # what the keeper made is read
        names = [_READER, *(c for name in (*planned_pass.runs, *redone) for c in kinds[name])]
        if planned_pass.name.startswith("keys for "):
            names += _classes_of(curation.steps[next(groups).decides[-1]])
            written = int(next(keys))
        elif planned_pass.name.startswith("texts for "):
            written = int(decoded * _TEXT_SHARE)
        elif planned_pass.name == "write":
            names.append(_WRITER)
            written = decoded
        else:
            written = int(sizes["n_documents"]) * _NUMBER_BYTES
        cpu_s = decoded * shipped_table.seconds_per_byte(names)
        seconds = round(cpu_s / n_workers / n_nodes, 2)
        costs.append(PassCost(planned_pass.name, decoded, written, held_bytes, round(cpu_s, 2), seconds))
    return costs


def _classes_of(step: Any) -> list[str]:
    """Return the class names of a step as the shipped table spells them; of one that carries filters, theirs."""
    if isinstance(step, CorpusStep):
        return [f"tamis.dedup.{step.kind.name}."]
    inside = getattr(step, "filter_obj", None) or getattr(step, "modifier_fn", None) or step
    parts = inside if isinstance(inside, list) else [inside]
    return [f"{type(part).__module__}.{type(part).__qualname__}" for part in parts]
