"""Cosmos Xenna: leases are the items of a pipeline whose one stage has one worker on every node, which holds the agent.

Options: `logging_interval`, `ignore_failures`, `execution_mode`, `cpu_allocation_percentage`, `autoscale_interval_s` go to Xenna as they are. Its
stage asks for as many CPUs as Xenna will give on the smallest node, never for more: a pipeline that needs more is fused into what there is.
A worker that is killed ends a pipeline of Xenna's: another one follows.
"""

from __future__ import annotations

from typing import Any

from tamis.backends.cluster.placing.actors import agent_facts
from tamis.backends.cluster.placing.driver import Driver
from tamis.backends.cluster.placing.leases import LeaseHolder, repeat

_N_ITEMS = 64  # of one pipeline, for every node; another follows while the run goes on


def make_stage(about: dict[str, Any], n_cpus: float, n_gpus: float) -> Any:
    """Xenna's stage. `n_cpus`: what Xenna is asked for; `about`: what the agent is told."""
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
            self._holder = LeaseHolder(about)

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


def place(wish: dict[str, Any], driver: Driver) -> None:
    from cosmos_xenna.pipelines import v1 as pipelines

    repeat(
        driver, wish, "a pipeline of Xenna's", lambda nodes: pipelines.run_pipeline(specified(wish, nodes)), Exception
    )


def specified(wish: dict[str, Any], nodes: list[dict[str, Any]]) -> Any:
    """Return the pipeline specification with the user's settings."""
    from cosmos_xenna.pipelines import v1 as pipelines

    options = wish["options"]
    share = float(options["cpu_allocation_percentage"])
    cpus = min((n["Resources"].get("CPU", 1) for n in nodes), default=1)
    gpus = min((n["Resources"].get("GPU", 0) for n in nodes), default=0)
    mode = pipelines.ExecutionMode.BATCH if options["execution_mode"] == "batch" else pipelines.ExecutionMode.STREAMING
    streaming = pipelines.StreamingSpecificSpec(
        autoscale_interval_s=float(options["autoscale_interval_s"]), executor_verbosity_level=pipelines.VerbosityLevel.INFO,
    )  # fmt: skip
    config = pipelines.PipelineConfig(
        execution_mode=mode, logging_interval_s=float(options["logging_interval"]), ignore_failures=bool(options["ignore_failures"]),
        return_last_stage_outputs=True, mode_specific=None if mode is pipelines.ExecutionMode.BATCH else streaming,
        # Xenna rounds down, and would find no CPU on a node with one: its share is at least one core.
        cpu_allocation_percentage=min(1.0, max(share, 1.0 / max(cpus, 1.0))),
    )  # fmt: skip
    asked = max(0.5, min(1.0, int(cpus * share) or 1.0))
    stage = make_stage(agent_facts(wish, n_workers(cpus, share)), asked, float(gpus))
    spec = pipelines.StageSpec(stage, num_workers_per_node=1)
    return pipelines.PipelineSpec(input_data=list(range(_N_ITEMS * max(1, len(nodes)))), stages=[spec], config=config)
