"""The environment variables that Tamis reads: docs/reference/environment.md is generated from these declarations.

A test compares the names with those in the sources, so that a new variable cannot stay undocumented.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """An environment variable for users; `meaning` may link to pages, relative to docs/reference."""

    name: str
    meaning: str
    default: str


VARIABLES = (
    Variable(
        "TAMIS_MEMORY",
        "memory budget of runs without `--memory`, e.g. `2GB` ([size a budget](../guides/memory.md))",
        "the control group's limit, or 80 % of the available memory",
    ),
    Variable(
        "TAMIS_ALERTS",
        "file with your alert rules, or `off` ([alerts](../guides/alerts.md))",
        "`alerts.yaml` or `alerts.toml` in `~/.config/tamis`",
    ),
    Variable(
        "TAMIS_PROFILES",
        "`off`: runs neither read nor write machine profiles ([plan a run](../guides/planning.md))",
        "on",
    ),
    Variable("TAMIS_PROFILE_DIR", "folder for machine profiles", "`profiles` in `TAMIS_CACHE_DIR`"),
    Variable(
        "TAMIS_CACHE_DIR",
        "folder for machine profiles and for kernels compiled on this machine",
        "`$XDG_CACHE_HOME/tamis`, or `~/.cache/tamis`",
    ),
    Variable(
        "TAMIS_RUNS",
        "local folder for runs whose output is in a bucket: locks, staged files, run directories "
        "([object stores](../guides/stores.md))",
        "`$XDG_STATE_HOME/tamis/runs`, or `~/.local/state/tamis/runs`",
    ),
    Variable(
        "TAMIS_KERNELS",
        "`python`: run kernels without compiling them (slow); or the name of a CPU level "
        "([kernels](../explanation/kernels.md))",
        "the best level of this CPU",
    ),
    Variable(
        "TAMIS_GATE",
        "`off`: do not let mappings and child processes of stages wait for permission; for debuggers "
        "([memory](../explanation/memory.md))",
        "on, where the kernel allows it",
    ),
    Variable(
        "TAMIS_SEEN_S",
        "seconds that a node of a cluster waits for a file written by another node, on slow shared file systems "
        "([clusters](../guides/cluster.md))",
        "20",
    ),
    Variable(
        "TAMIS_BUILD_LEVELS",
        "at installation from source: CPU levels to compile for (`native`, `all`, `none`, or names)",
        "`native`",
    ),
    Variable("TAMIS_BUILD_PLATFORM", "when a wheel is built: its platform tag", "that of this machine"),
)

# Variables that Tamis sets for the processes it starts.
INTERNAL = (
    "TAMIS_DASHBOARD_TOKEN",
    "TAMIS_GPU_LOCKS",
    "TAMIS_GPU_MEMORY",
    "TAMIS_GPU_OVERFLOW",
    "TAMIS_GPU_SHARE",
    "TAMIS_STARTED_BY",
    "TAMIS_STORES",
    "TAMIS_STORE_KEYS",
)
