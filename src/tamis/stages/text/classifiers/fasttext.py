"""FastTextClassifier: a linear model over words and their n-grams.

For machines without a GPU, thousands of documents a second.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.errors import UsageError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.fingerprints import of_file
from tamis.stages.text.filters.score_filter import Filter
from tamis.stages.text.models.label_filter import LabelFilter, refuse_unknown
from tamis.stages.text.models.utils import check_max_chars
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    from tamis.stages.text.fasttext.model import FastTextModel

LABEL = "__label__"


@dataclass(repr=False)
class FastTextModelStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the best label of each text, and probabilities. Documents without a text get nulls.

    `score_field` gets the probability of `score_label`, or, without one, of every label by its name.
    """

    model_path: str
    label_field: str = "label"
    score_field: str | None = None
    text_field: str = "text"
    max_chars: int | None = None
    score_label: str | None = None
    name: str = "fasttext_model"
    kernel_groups: ClassVar[tuple[str, ...]] = ("text",)
    columns_in = ("text_field",)
    columns_out = ("label_field", "score_field")

    def __post_init__(self) -> None:
        if not os.path.isfile(self.model_path):
            raise UsageError(
                f"FastTextClassifier: model_path {self.model_path!r} is not a file; expected a fastText model (.bin "
                "or .ftz)"
            )
        check_max_chars("FastTextClassifier", self.max_chars)
        self._model: FastTextModel | None = None
        self._wanted: list[Any] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}

    def model_files(self) -> str:
        return of_file(self.model_path) or ""

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Map the file before workers are forked, so that they share it."""
        self.setup()

    def setup(self, worker_metadata: Any = None) -> None:
        if self._model is None:
            from tamis.stages.text.fasttext.model import FastTextModel

            model = FastTextModel.load(self.model_path)
            labels = [*self._wanted, *([self.score_label] if self.score_label is not None else [])]
            if labels:
                refuse_unknown(labels, [name.removeprefix(LABEL) for name in model.labels], self.model_path)
            self._model = model

    def want_labels(self, labels: list[Any]) -> None:
        """Note the labels by which a later stage keeps documents.

        Those that the model does not have are refused when it is loaded.
        """
        self._wanted = labels

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.setup()
        assert self._model is not None
        texts = task.texts(self.text_field)
        if self.max_chars is not None:
            texts = pc.utf8_slice_codeunits(texts, 0, self.max_chars)
        all_ids, all_scores = self._model.predict_ids(texts, k=1 if self.score_field is None else -1)
        ids = all_ids[:, 0] if all_ids.shape[1] else np.full(len(texts), -1)
        labels = [name.removeprefix(LABEL) for name in self._model.labels]
        names = pa.array(labels, pa.large_string())
        has = np.asarray(texts.is_valid()) & (ids >= 0)
        result = task.with_column(self.label_field, names.take(pa.array(np.where(has, ids, 0), mask=~has)))
        if self.score_field is not None:
            chances = np.zeros((len(ids), len(labels)))
            rows, columns = np.nonzero(all_ids >= 0)
            chances[rows, all_ids[rows, columns]] = np.minimum(all_scores[rows, columns].astype(np.float64), 1.0)
            result = result.with_column(self.score_field, self._scores(np.round(chances, 6), labels, has))
        return result

    def _scores(self, chances: Any, labels: list[str], has: Any) -> pa.Array:
        if self.score_label is not None:
            return pa.array(chances[:, labels.index(self.score_label)], mask=~has)
        columns = [pa.array(chances[:, i]) for i in range(len(labels))]
        return pa.StructArray.from_arrays(columns, labels, mask=pa.array(~has))


@dataclass(repr=False)
class FastTextClassifier(CompositeStage[DocumentBatch, DocumentBatch]):
    """A fastText model: one that `tamis train-classifier` made, or any supervised one (.bin or .ftz).

    `label_field` gets the label without its prefix; `score_field`, if given, the probability of `score_label`, or of
    every label by its name. `filter_by`: labels of the documents that stay.
    """

    model_path: str
    label_field: str = "label"
    score_field: str | None = None
    text_field: str = "text"
    filter_by: list[str] | None = None
    max_chars: int | None = None
    score_label: str | None = None
    name: str = "fasttext_classifier"
    columns_in = ("text_field",)

    def __post_init__(self) -> None:
        if isinstance(self.filter_by, str):
            raise UsageError(f"FastTextClassifier: filter_by must be a list of labels, got {self.filter_by!r}")
        self.decompose()

    def outputs(self) -> Any:
        return self.decompose()[0].outputs()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if self.score_label is not None and self.score_field is None:
            raise UsageError("FastTextClassifier: score_label names a label for score_field; give that, too")
        model = FastTextModelStage(
            self.model_path, self.label_field, self.score_field, self.text_field, self.max_chars, self.score_label
        )
        stages: list[ProcessingStage[Any, Any]] = [model]
        if self.filter_by:
            model.want_labels(list(self.filter_by))
            stages.append(Filter(LabelFilter(list(self.filter_by)), self.label_field, name=f"{self.name}_filter"))
        return stages
