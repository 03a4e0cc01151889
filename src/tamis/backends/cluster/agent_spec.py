"""The specification that an agent is started with.

A separate module: agents import it, and so do the processes that start them, which must stay small.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class AgentSpec:
    """The hub with its token, and the node as the engine describes it (0 and "": as the agent finds it)."""

    host: str
    port: int
    token: str
    n_cpus: int = 0
    name: str = ""
    declared_bytes: int = 0  # memory that the engine declares for the node
    devices: list[str] = field(default_factory=list)
    parent: int = 0  # process with which the agent ends
