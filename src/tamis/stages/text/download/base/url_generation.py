"""URLs to download: who lists them, and the stage that turns each into a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.sizes import check_optional_integer
from tamis.stages.base import ProcessingStage
from tamis.stages.traits import StageTraits
from tamis.tasks import EmptyTask, FileGroupTask


class URLGenerator(ABC):
    """Lists the URLs to download."""

    @abstractmethod
    def generate_urls(self) -> list[str]:
        """Return the URLs, in a stable order."""


@dataclass(repr=False)
class URLGenerationStage(ProcessingStage[EmptyTask | FileGroupTask, FileGroupTask]):
    """The source of a download: one task per URL, the first `limit` of them.

    A run lists the URLs before it starts, so that each is a unit of work by itself; here they pass.
    """

    url_generator: URLGenerator
    limit: int | None = None
    columns_out = ()
    traits: ClassVar[StageTraits] = StageTraits(lists_work=True)

    def __post_init__(self) -> None:
        self.name = f"url_generation_{type(self.url_generator).__name__.lower()}"
        check_optional_integer(self.limit, f"{self.name}: limit")

    def num_workers(self) -> int | None:
        return None  # one EmptyTask is one unit of work for any worker

    def ray_stage_spec(self) -> dict[str, Any]:
        return {"is_fanout_stage": True}

    def process(self, task: EmptyTask | FileGroupTask) -> list[FileGroupTask]:
        if isinstance(task, FileGroupTask):
            return [task]
        urls = list(dict.fromkeys(self.url_generator.generate_urls()))
        return [
            FileGroupTask(task.dataset_name, [url], _metadata={"source_url": url, "source_files": [url]})
            for url in urls[: self.limit]
        ]
