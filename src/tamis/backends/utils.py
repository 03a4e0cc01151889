"""Queries of stages and scripts about the machine or cluster they run on.

Answers are those of this machine: the local executor has one node.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tamis.engine.worker.node import NodeInfo, WorkerMetadata, this_node
from tamis.errors import UsageError
from tamis.memory.gpu import count_gpus

if TYPE_CHECKING:
    from tamis.stages.base import ProcessingStage

log = logging.getLogger("tamis.backends")


class RayStageSpecKeys(StrEnum):
    """Keys that `ray_stage_spec` of a stage may have."""

    IS_ACTOR_STAGE = "is_actor_stage"
    IS_FANOUT_STAGE = "is_fanout_stage"
    IS_RAFT_ACTOR = "is_raft_actor"
    IS_LSH_STAGE = "is_lsh_stage"
    IS_SHUFFLE_STAGE = "is_shuffle_stage"
    MAX_CALLS_PER_WORKER = "max_calls_per_worker"
    MIN_WORKERS = "min_workers"
    MAX_WORKERS = "max_workers"
    INITIAL_WORKERS = "initial_workers"
    RAY_REMOTE_ARGS = "ray_remote_args"
    RAY_NUM_CPUS = "ray_num_cpus"


def get_available_cpu_gpu_resources(
    init_and_shutdown: bool = False, ignore_head_node: bool = False
) -> tuple[float, float]:
    """Return (cores, GPUs) that this process may use.

    Both parameters are about Ray: here nothing is started, and no node is a head.
    """
    if init_and_shutdown or ignore_head_node:
        log.info(
            "get_available_cpu_gpu_resources: this is one machine without Ray; its own cores and GPUs are returned"
        )
    return float(len(os.sched_getaffinity(0))), float(count_gpus())


def check_total_gpu_capacity(gpus_needed: float, *, ignore_head_node: bool = False) -> None:
    """Raise UsageError if there are fewer GPUs."""
    _, available = get_available_cpu_gpu_resources(ignore_head_node=ignore_head_node)
    if gpus_needed > available:
        raise UsageError(f"{gpus_needed:g} GPUs are needed, and there are {available:g}")


def get_worker_metadata_and_node_id() -> tuple[NodeInfo, WorkerMetadata]:
    """Return descriptions of this machine and this process."""
    return this_node(), WorkerMetadata(worker_id=str(os.getpid()))


def execute_setup_on_node(stages: Sequence[ProcessingStage[Any, Any]], ignore_head_node: bool = False) -> None:
    """Call `setup_on_node` of each stage, here and now. `ignore_head_node` is about Ray."""
    if ignore_head_node:
        log.info("execute_setup_on_node: this is one machine without Ray; its stages are set up here")
    node, _ = get_worker_metadata_and_node_id()
    for stage in stages:
        stage.setup_on_node(node, WorkerMetadata())


def merge_executor_configs(
    base_config: Mapping[str, Any] | None, override_config: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return both configurations merged, including nested mappings; `override_config` takes precedence.

    Neither argument is changed.

    >>> merge_executor_configs({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": 4})
    {'a': {'x': 1, 'y': 3}, 'b': 4}
    """
    merged = copy.deepcopy(dict(base_config or {}))
    for key, value in (override_config or {}).items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = merge_executor_configs(below, value) if both else copy.deepcopy(value)
    return merged


def warn_on_env_var_override(
    existing_config: Mapping[str, Any] | None, merged_config: Mapping[str, Any] | None
) -> None:
    """Say which environment variables of an executor a merged configuration changes."""
    before, after = (
        ((config or {}).get("runtime_env") or {}).get("env_vars") or {} for config in (existing_config, merged_config)
    )
    changed = sorted(name for name in before if name in after and before[name] != after[name])
    if changed:
        log.warning(
            "the merged configuration changes these environment variables of the executor: %s", ", ".join(changed)
        )
