"""The machine or cluster a plan is made for: `--machine 64GB,32cores,4gpus`, `--cluster 8x(64cpu,512GB,8gpu)`.

And what a plan for several machines adds: what every node must deliver and hold, what the driver must keep up with,
which figures were measured.

The constants were measured on one machine (benchmarks/cluster.py prints them anew): nothing here has been tried on a
thousand nodes, and the lines say so.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tamis.errors import UsageError
from tamis.sizes import format_size, parse_size

_MEMORY_SHARE = 0.8  # as where no budget is given: the rest is for the system
_MAX_NODES = 1_000_000
# Measured with 3,000 partitions of one document each: CPU time of the driver, from the assignment of a partition to its
# line in the log.
DRIVER_S_PER_PARTITION = 0.0013
# Measured as PSS: the agent and the process of Ray's above it; and Ray's own processes on a node, which no budget of
# ours counts.
AGENT_BYTES, RAY_BYTES, RAY_HEAD_BYTES = 130_000_000, 180_000_000, 480_000_000


@dataclass(frozen=True)
class PlannedMachine:
    """`nodes` equal machines. `memory_bytes` is None for this one, whose budget is found, not assumed."""

    nodes: int
    memory_bytes: int | None
    cores: int
    gpus: int = 0

    @property
    def is_this_machine(self) -> bool:
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
    """The input that a plan is for. `n_files` is 0 for one that is only imagined."""

    n_files: int
    kinds: dict[str, int]
    input_bytes: int
    decoded_bytes: int
    document_bytes: int | None = None


def this_machine() -> PlannedMachine:
    return PlannedMachine(1, None, len(os.sched_getaffinity(0)))


def parse_machine(text: str, option: str = "--machine") -> PlannedMachine:
    """Parse a description of machines.

    >>> parse_machine("64GB,32cores")
    PlannedMachine(nodes=1, memory_bytes=64000000000, cores=32, gpus=0)
    >>> parse_machine("10x64GB, 32 cores, 4gpus", "--cluster").nodes
    10
    >>> parse_machine("8x(64cpu,512GB,8gpu)", "--cluster")
    PlannedMachine(nodes=8, memory_bytes=512000000000, cores=64, gpus=8)
    """
    nodes, parts = 1, text
    if option == "--cluster":
        match = re.fullmatch(r"\s*(\d{1,7})\s*[xX]\s*(.+)", text)
        if match is None or not 1 <= int(match[1]) <= _MAX_NODES:
            raise UsageError(
                f"{option} {text}: expected the number of nodes and what each has, e.g. {option} '8x(64cpu,512GB,8gpu)'"
            )
        nodes, parts = int(match[1]), match[2].strip()
        if parts.startswith("(") and parts.endswith(")"):
            parts = parts[1:-1]
    amounts: dict[str, int] = {}
    for part in parts.split(","):
        counted = re.fullmatch(r"\s*(\d{1,5})\s*(core|cpu|gpu)s?\s*", part, re.IGNORECASE)
        name = "memory" if counted is None else "gpus" if counted[2].lower() == "gpu" else "cores"
        if name in amounts or (name == "cores" and counted is not None and int(counted[1]) == 0):
            raise UsageError(
                f"{option} {text}: cannot read {part.strip()!r}; expected e.g. {option} 64GB,32cores,4gpus"
            )
        amounts[name] = parse_size(part.strip(), option) if counted is None else int(counted[1])
    if not {"memory", "cores"} <= amounts.keys():
        raise UsageError(f"{option} {text}: expected memory and cores, e.g. {option} 64GB,32cores")
    return PlannedMachine(nodes, amounts["memory"], amounts["cores"], amounts.get("gpus", 0))


@dataclass(frozen=True)
class ClusterFigures:
    """`limited_by`: "workers", or "driver" where partitions come faster than one driver can book them."""

    nodes: int
    seconds: float
    read_bytes_per_s: float  # of all nodes together
    node_read_bytes_per_s: float
    partitions_per_s: float
    driver_limit_per_s: float
    limited_by: str
    agent_bytes: int
    ray_bytes: int
    ray_head_bytes: int
    n_shards: int  # drivers that would not limit it (tamis run --shard)


def cluster_figures(nodes: int, seconds: float, decoded_bytes: int, n_partitions: int) -> ClusterFigures:
    """Return the figures of a cluster; `seconds` is what the workers of all nodes would take.

    >>> made = cluster_figures(8, 1000.0, 10**13, 300_000)
    >>> made.limited_by, made.n_shards, round(made.read_bytes_per_s / 1e9)
    ('workers', 1, 10)
    >>> cluster_figures(1000, 3600.0, 10**15, 30_000_000).limited_by
    'driver'
    """
    driver_s = n_partitions * DRIVER_S_PER_PARTITION
    took = max(seconds, driver_s, 1e-9)
    return ClusterFigures(
        nodes,
        round(took, 1),
        decoded_bytes / took,
        decoded_bytes / took / max(nodes, 1),
        n_partitions / took,
        1 / DRIVER_S_PER_PARTITION,
        "driver" if driver_s > seconds else "workers",
        AGENT_BYTES,
        RAY_BYTES,
        RAY_HEAD_BYTES,
        max(1, -(-int(driver_s) // max(int(seconds), 1))),
    )


def cluster_lines(f: ClusterFigures, rates_from: str) -> list[str]:
    """Return human-readable lines, each with the source of its figures. `rates_from`: the basis of the plan itself."""
    driver = (
        f"{f.partitions_per_s:,.0f} partitions/s of the {f.driver_limit_per_s:,.0f} that one driver books (measured "
        "on one machine)"
    )
    if f.limited_by == "driver":
        driver += f"; the driver is the limit: give a larger --blocksize, or {f.n_shards} drivers (--shard)"
    return [
        f"{'storage':<12} all nodes together read {format_size(f.read_bytes_per_s)}/s, each "
        f"{format_size(f.node_read_bytes_per_s)}/s "
        "(follows from the time; whether yours delivers it was not measured)",
        f"{'driver':<12} {driver}",
        f"{'on each node':<12} {format_size(f.agent_bytes)} of the budget for the agent, {format_size(f.ray_bytes)} "
        "beside it for Ray, "
        f"{format_size(f.ray_head_bytes)} on the head (measured)",
        f"{'measured':<12} memory of agents and Ray, the driver's rate; {rates_from}. Assumed: that nodes are as fast "
        "as this machine, that "
        "they do not slow each other down, and that storage keeps up",
    ]
