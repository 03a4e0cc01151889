"""The machine or cluster a plan is made for: `--machine 64GB,32cores,4gpus`, `--cluster 8x(64cpu,512GB,8gpu)`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tamis.errors import UsageError
from tamis.sizes import format_size, parse_size

_MEMORY_SHARE = 0.8  # as where no budget is given: the rest is for the system
_MAX_NODES = 1_000_000


@dataclass(frozen=True)
class Machine:
    """`nodes` equal machines. `memory_bytes` is None for this one, whose budget is found, not assumed."""

    nodes: int
    memory_bytes: int | None
    cores: int
    gpus: int = 0

    @property
    def is_here(self) -> bool:
        return self.memory_bytes is None

    @property
    def budget_bytes(self) -> int:
        return int((self.memory_bytes or 0) * _MEMORY_SHARE)

    def __str__(self) -> str:
        if self.memory_bytes is None:
            return f"this one, {self.cores} cores"
        gpus = f", {self.gpus} GPUs" if self.gpus else ""
        each = f"{format_size(self.memory_bytes)}, {self.cores} cores{gpus}"
        return each if self.nodes == 1 else f"{self.nodes:,} nodes of {each} each"


@dataclass(frozen=True)
class Dataset:
    """What a plan is made for. `n_files` is 0 for one that is only imagined."""

    n_files: int
    kinds: dict[str, int]
    input_bytes: int
    decoded_bytes: int
    document_bytes: int | None = None


def this_machine() -> Machine:
    return Machine(1, None, len(os.sched_getaffinity(0)))


def parse_machine(text: str, option: str = "--machine") -> Machine:
    """
    >>> parse_machine("64GB,32cores")
    Machine(nodes=1, memory_bytes=64000000000, cores=32, gpus=0)
    >>> parse_machine("10x64GB, 32 cores, 4gpus", "--cluster").nodes
    10
    >>> parse_machine("8x(64cpu,512GB,8gpu)", "--cluster")
    Machine(nodes=8, memory_bytes=512000000000, cores=64, gpus=8)
    """
    nodes, rest = 1, text
    if option == "--cluster":
        match = re.fullmatch(r"\s*(\d{1,7})\s*[xX]\s*(.+)", text)
        if match is None or not 1 <= int(match[1]) <= _MAX_NODES:
            raise UsageError(
                f"{option} {text}: expected the number of nodes and what each has, e.g. {option} '8x(64cpu,512GB,8gpu)'"
            )
        nodes, rest = int(match[1]), match[2].strip()
        if rest.startswith("(") and rest.endswith(")"):
            rest = rest[1:-1]
    memory = cores = gpus = None
    for part in rest.split(","):
        counted = re.fullmatch(r"\s*(\d{1,5})\s*(cores?|cpus?|gpus?)\s*", part, re.IGNORECASE)
        if counted is None and memory is None:
            memory = parse_size(part.strip(), option)
        elif counted is not None and counted[2].lower().startswith("gpu") and gpus is None:
            gpus = int(counted[1])
        elif counted is not None and not counted[2].lower().startswith("gpu") and cores is None and int(counted[1]) > 0:
            cores = int(counted[1])
        else:
            raise UsageError(
                f"{option} {text}: cannot read {part.strip()!r}; expected e.g. {option} 64GB,32cores,4gpus"
            )
    if memory is None or cores is None:
        raise UsageError(f"{option} {text}: expected memory and cores, e.g. {option} 64GB,32cores")
    return Machine(nodes, memory, cores, gpus or 0)
