"""Sums over the measurements of stages: `_stage_perf` of the tasks that a run or a workflow returned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tamis._lazy import np
from tamis.tasks.tasks import Task


class TaskPerfUtils:
    """`tasks`: a list of tasks, lists of them by the name of their pipeline, or the result of a workflow."""

    @staticmethod
    def collect_stage_metrics(tasks: Any) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
        """Return stage -> measure -> its values, one for each record of that stage."""
        metrics: dict[str, dict[str, list[float]]] = {}
        for perf in _perfs(task for _, group in _groups(tasks) for task in group):
            measures = metrics.setdefault(perf.stage_name, {})
            for name, value in perf.items():
                measures.setdefault(name, []).append(float(value))
        return {stage: {name: np.array(v, float) for name, v in m.items()} for stage, m in metrics.items()}

    @staticmethod
    def aggregate_task_metrics(tasks: Any, prefix: str | None = None) -> dict[str, float]:
        """Return `<stage>_<measure>_<sum|mean|std>` -> number.

        `prefix`, and the pipeline if there are several, come first in the names.
        """
        metrics: dict[str, float] = {}
        groups = _groups(tasks)
        for pipeline, group in groups:
            pipeline_prefix = pipeline if prefix or len(groups) > 1 else ""
            begin = "_".join(part for part in (prefix, pipeline_prefix) if part)
            for stage, measures in TaskPerfUtils.collect_stage_metrics(list(group)).items():
                for name, values in measures.items():
                    key = f"{begin}_{stage}_{name}" if begin else f"{stage}_{name}"
                    metrics |= {
                        f"{key}_sum": float(values.sum()),
                        f"{key}_mean": float(values.mean()),
                        f"{key}_std": float(values.std()),
                    }
        return metrics

    @staticmethod
    def get_aggregated_stage_stat(tasks: Any, stage_prefix: str, stat: str) -> float:
        """Return the sum of a measure over the stages whose names begin with `stage_prefix`."""
        measured = TaskPerfUtils.collect_stage_metrics(tasks)
        return float(sum(m[stat].sum() for name, m in measured.items() if name.startswith(stage_prefix) and stat in m))


def _groups(tasks: Any) -> list[tuple[str, Sequence[Task[Any]]]]:
    tasks = getattr(tasks, "pipeline_tasks", tasks)
    if tasks is None:
        return []
    if isinstance(tasks, Mapping):
        inner = tasks.get("pipeline_tasks", tasks)
        return [(str(name), [group] if isinstance(group, Task) else list(group or ())) for name, group in inner.items()]
    if isinstance(tasks, (list, tuple)):
        return [("", tasks)]
    raise TypeError(f"expected tasks, tasks by pipeline, or the result of a workflow, got {type(tasks).__name__}")


def _perfs(tasks: Iterator[Task[Any]]) -> Iterator[Any]:
    """Yield every performance record once: tasks that were created together share it."""
    seen: set[int] = set()
    for task in tasks:
        for perf in task._stage_perf or ():
            if id(perf) not in seen:
                seen.add(id(perf))
                yield perf
