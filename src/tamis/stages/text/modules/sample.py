"""Sample: keeps a share of the documents, chosen by a hash of their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tamis._lazy import np
from tamis.sizes import parse_fraction
from tamis.stages.base import ProcessingStage
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class Sample(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Keeps `fraction` of the documents ("10%", 0.1) by a hash of their text and `seed`.

    The same documents whatever else is in the input and however it is cut; equal texts stay or go together. A larger
    fraction with the same seed keeps all that a smaller one does. A null text counts as an empty one.
    """

    fraction: float | str = 1.0
    seed: int = 0
    text_field: str = "text"
    name: str = "sample"
    traits: ClassVar[StageTraits] = StageTraits(only_drops=True)
    columns_in = ("text_field",)

    def __post_init__(self) -> None:
        self.fraction = parse_fraction(self.fraction, f"{self.name}: fraction")

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.records.hash128 import hash_arrow_strings

        parts = string_buffers(batch.texts(self.text_field))
        draws, _ = hash_arrow_strings(parts.offsets, parts.data, parts.validity, self.seed)
        keep = (draws >> np.uint64(11)).astype(np.float64) / 2.0**53 < float(self.fraction)
        self._note_drops(batch.serial[np.flatnonzero(~keep)], "not_sampled", None, {"fraction": self.fraction})
        return batch.filter(keep)
