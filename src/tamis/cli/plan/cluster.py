"""What a plan for several machines adds: what every node must deliver and hold, what the driver must keep up with, which figures were measured.

The constants were measured on one machine (benchmarks/cluster.py prints them anew): nothing here has been tried on a thousand nodes, and the
lines say so.
"""

from __future__ import annotations

from dataclasses import dataclass

from tamis.sizes import format_size

# Measured with 3,000 partitions of one document each: CPU time of the driver, from the assignment of a partition to its line in the log.
DRIVER_S_PER_PARTITION = 0.0013
# Measured as PSS: the agent and the process of Ray's above it; and Ray's own processes on a node, which no budget of ours counts.
AGENT_BYTES, RAY_BYTES, RAY_HEAD_BYTES = 130_000_000, 180_000_000, 480_000_000


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
    """`seconds`: what the workers of all nodes would take.

    >>> made = cluster_figures(8, 1000.0, 10**13, 300_000)
    >>> made.limited_by, made.n_shards, round(made.read_bytes_per_s / 1e9)
    ('workers', 1, 10)
    >>> cluster_figures(1000, 3600.0, 10**15, 30_000_000).limited_by
    'driver'
    """
    driver_s = n_partitions * DRIVER_S_PER_PARTITION
    took = max(seconds, driver_s, 1e-9)
    return ClusterFigures(
        nodes, round(took, 1), decoded_bytes / took, decoded_bytes / took / max(nodes, 1), n_partitions / took, 1 / DRIVER_S_PER_PARTITION,
        "driver" if driver_s > seconds else "workers", AGENT_BYTES, RAY_BYTES, RAY_HEAD_BYTES, max(1, -(-int(driver_s) // max(int(seconds), 1))),
    )  # fmt: skip


def cluster_lines(f: ClusterFigures, rates_from: str) -> list[str]:
    """For people, each with where its figures come from. `rates_from`: the basis of the plan itself."""
    driver = f"{f.partitions_per_s:,.0f} partitions/s of the {f.driver_limit_per_s:,.0f} that one driver books (measured on one machine)"
    if f.limited_by == "driver":
        driver += f"; the driver is the limit: give a larger --blocksize, or {f.n_shards} drivers (--shard)"
    return [
        f"{'storage':<12} all nodes together read {format_size(f.read_bytes_per_s)}/s, each {format_size(f.node_read_bytes_per_s)}/s "
        "(follows from the time; whether yours delivers it was not measured)",
        f"{'driver':<12} {driver}",
        f"{'on each node':<12} {format_size(f.agent_bytes)} of the budget for the agent, {format_size(f.ray_bytes)} beside it for Ray, "
        f"{format_size(f.ray_head_bytes)} on the head (measured)",
        f"{'measured':<12} memory of agents and Ray, the driver's rate; {rates_from}. Assumed: that nodes are as fast as this machine, that "
        "they do not slow each other down, and that storage keeps up",
    ]
