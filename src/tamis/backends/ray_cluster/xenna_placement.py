"""Cosmos Xenna: leases are the items of a pipeline whose one stage has one worker on every node, which holds the agent.

Options: `logging_interval`, `ignore_failures`, `execution_mode`, `cpu_allocation_percentage`, `autoscale_interval_s` go
to Xenna as they are. Its stage asks for as many CPUs as Xenna will give on the smallest node, never for more: a
pipeline that needs more is fused into what is available. A worker that is killed ends a pipeline of Xenna's: another
one follows.
"""

from __future__ import annotations

from typing import Any

from tamis.backends.cluster.agent_spec import AgentSpec
from tamis.backends.cluster.placement import DriverLink, PlacementRequest
from tamis.backends.ray_cluster.leases import LeaseHolder, repeat
from tamis.backends.ray_cluster.nodes import Node, RayConnection
from tamis.backends.ray_cluster.options import options_of

_N_ITEMS = 64  # of one pipeline, for every node; another follows while the run continues


class XennaPlacement(RayConnection):
    """Runs one pipeline of leases after the other."""

    def place(self, request: PlacementRequest, driver: DriverLink) -> None:
        from cosmos_xenna.pipelines import v1 as pipelines

        def run(nodes: list[Node]) -> None:
            pipelines.run_pipeline(make_pipeline(request, nodes))

        repeat(driver, request, "a pipeline of Xenna's", run, Exception)


def make_pipeline(request: PlacementRequest, nodes: list[Node]) -> Any:
    """Return the pipeline specification with the user's settings."""
    from cosmos_xenna.pipelines import v1 as pipelines

    options = options_of(request)
    share = float(options.cpu_allocation_percentage)
    cpus = min((n["Resources"].get("CPU", 1) for n in nodes), default=1)
    gpus = min((n["Resources"].get("GPU", 0) for n in nodes), default=0)
    mode = pipelines.ExecutionMode.BATCH if options.execution_mode == "batch" else pipelines.ExecutionMode.STREAMING
    streaming = pipelines.StreamingSpecificSpec(
        autoscale_interval_s=float(options.autoscale_interval_s),
        executor_verbosity_level=pipelines.VerbosityLevel.INFO,
    )
    config = pipelines.PipelineConfig(
        execution_mode=mode,
        logging_interval_s=float(options.logging_interval),
        ignore_failures=bool(options.ignore_failures),
        return_last_stage_outputs=True,
        mode_specific=None if mode is pipelines.ExecutionMode.BATCH else streaming,
        # Xenna rounds down, and would find no CPU on a node with one: its share is at least one core.
        cpu_allocation_percentage=min(1.0, max(share, 1.0 / max(cpus, 1.0))),
    )
    n_cpus = max(0.5, min(1.0, int(cpus * share) or 1.0))
    stage = make_stage(request.agent(n_workers(cpus, share)), n_cpus, float(gpus))
    spec = pipelines.StageSpec(stage, num_workers_per_node=1)
    return pipelines.PipelineSpec(input_data=list(range(_N_ITEMS * max(1, len(nodes)))), stages=[spec], config=config)


def make_stage(agent: AgentSpec, n_cpus: float, n_gpus: float) -> Any:
    """Return Xenna's stage, which holds an agent and needs these CPUs and GPUs."""
    from cosmos_xenna.pipelines import v1 as pipelines

    class AgentStage(pipelines.Stage[Any, Any]):  # type: ignore[misc]
        def __init__(self) -> None:
            self._holder: LeaseHolder | None = None

        @property
        def stage_batch_size(self) -> int:
            return 1

        @property
        def required_resources(self) -> Any:
            return pipelines.Resources(cpus=n_cpus, gpus=n_gpus)

        def setup(self, worker_metadata: Any) -> None:
            self._holder = LeaseHolder(agent)

        def process_data(self, in_data: list[Any]) -> list[Any]:
            assert self._holder is not None
            return [self._holder.work(int(lease)) for lease in in_data]

    return AgentStage()


def n_workers(cpus: float, share: float) -> int:
    """Return the number of Tamis workers for a node: its share of the cores, rounded to the nearest integer.

    Xenna rounds down for its own workers: with two cores and its usual share of 0.95, one core would stay idle,
    and half of the throughput would be lost.

    >>> [n_workers(*of) for of in ((2, 0.95), (64, 0.95), (2, 0.5), (8, 0.3), (1, 0.1))]
    [2, 61, 1, 2, 1]
    """
    return max(1, round(cpus * share))
