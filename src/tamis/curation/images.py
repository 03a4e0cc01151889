"""The steps of a curation that compare images: by their pixels, and by their embeddings."""

from __future__ import annotations

from typing import Any

from tamis._dataclasses import dataclass
from tamis.curation.steps import CorpusStep
from tamis.dedup.images.hashing import KEEP, ImageHashes
from tamis.dedup.kinds import EXACT, SEMANTIC
from tamis.dedup.passes import Passes
from tamis.dedup.solver_task import DecideEqual
from tamis.errors import UsageError, check_choice
from tamis.sizes import parse_fraction


@dataclass
class ExactImageDuplicates(CorpusStep):
    """Of images with the same pixels one stays, in whatever format they are stored.

    `keep`: the first in the input, or the one of the most bytes (largest). `max_source_loss`: stop where a folder (or
    tar) would lose more than this share.
    """

    keep: str = "first"
    max_source_loss: float | str = 0.95
    name: str = "remove_exact_image_duplicates"

    kind = EXACT
    text_field = ""

    def __post_init__(self) -> None:
        check_choice(f"{self.name}: keep", self.keep, KEEP)
        super().__post_init__()

    def workflow(self, output: str) -> Any:
        return _PixelWorkflow(output, self.keep, parse_fraction(self.max_source_loss, "max_source_loss"))


@dataclass
class SemanticImageDuplicates(CorpusStep):
    """Of images whose embeddings nearly agree one stays: those with a cosine of at least 1 - `eps` in one cluster.

    Behind ImageEmbeddingStage. See SemanticDeduplicationWorkflow.
    """

    eps: float = 0.01
    n_clusters: int | None = None
    which_to_keep: str = "hard"
    embedding_field: str = "embedding"
    random_state: int = 42
    max_source_loss: float | str = 0.95
    name: str = "remove_semantic_image_duplicates"

    kind = SEMANTIC
    text_field = ""

    def workflow(self, output: str) -> Any:
        return self.kind.load_workflow()(input_path="", output_path=output, perform_removal=False, **self.parameters())


@dataclass
class _PixelWorkflow:
    output_path: str
    keep: str
    max_source_loss: float

    def passes(self) -> Passes:
        """Return the passes without a source; the curation supplies its own."""

        def no_source() -> Any:
            raise UsageError("images are compared as a step of a curation")

        return Passes(
            "exact deduplication of images",
            no_source,
            [(ImageHashes(self.keep), [])],
            self.output_path,
            DecideEqual(),
            None,
            EXACT,
            max_source_loss=self.max_source_loss,
            identity={"keep": self.keep},
        )
