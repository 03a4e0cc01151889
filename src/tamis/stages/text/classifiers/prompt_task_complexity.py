"""PromptTaskComplexityClassifier: what a prompt asks for, and how hard that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.stages.text.classifiers.base import Classifier, softmax
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.device import TorchDevice
from tamis.stages.text.models.model import ModelStage, Network
from tamis.stages.text.models.utils import TOKENS

PROMPT_TASK_COMPLEXITY_MODEL_IDENTIFIER = "nvidia/prompt-task-and-complexity-classifier"
TASK = "task_type"
# The heads of the model after the first, in their order, with their weights in the complexity of a prompt.
DIMENSIONS = {
    "creativity_scope": 0.35,
    "reasoning": 0.25,
    "contextual_knowledge": 0.05,
    "number_of_few_shots": 0.05,
    "domain_knowledge": 0.15,
    "no_label_reason": 0.0,
    "constraint_ct": 0.15,
}
_NAMES = ("task_type_1", "task_type_2")
OUTPUT_FIELDS = ["prompt_complexity_score", "task_type_1", "task_type_2", "task_type_prob", *DIMENSIONS]
_SECOND_AT_LEAST = 0.1  # a second kind of task below this is none
_SHOTS_AT_LEAST = 0.05


class PromptTaskComplexityModelStage(ModelStage):
    """Eight heads over the mean of a DeBERTa's tokens."""

    columns_out = OUTPUT_FIELDS

    def __init__(
        self,
        cache_dir: str | None = None,
        model_inference_batch_size: int = 256,
        has_seq_order: bool = True,
        max_seq_length: int | None = None,
        autocast: bool = True,
        keep_tokens: bool = False,
        model_identifier: str = PROMPT_TASK_COMPLEXITY_MODEL_IDENTIFIER,
        hf_token: str | None = None,
        trust_remote_code: bool = False,
        tokens_field: str = TOKENS,
    ) -> None:
        super().__init__(
            model_identifier,
            cache_dir,
            hf_token,
            model_inference_batch_size,
            has_seq_order,
            "right",
            max_seq_length,
            autocast,
            keep_tokens,
            trust_remote_code,
            tokens_field,
        )
        self._sizes: list[int] = []
        self._maps: dict[str, Any] = {}

    def load(self, folder: folders.ModelFolder, device: TorchDevice) -> Network:
        from tamis.stages.text.models.networks import HeadedEncoder

        self._maps = {
            name: folder.config.get(name) for name in ("target_sizes", "task_type_map", "weights_map", "divisor_map")
        }
        wrong = [name for name, label_map in self._maps.items() if not isinstance(label_map, dict)]
        if wrong or list(self._maps["target_sizes"]) != [TASK, *DIMENSIONS]:
            raise UsageError(
                f"model folder {folder.path}: config.json has no "
                f"{wrong[0] if wrong else 'heads ' + ', '.join(DIMENSIONS)}"
            )
        network = HeadedEncoder(
            folder,
            device,
            self._max_tokens,
            self.autocast,
            prefix="backbone.",
            heads=[f"head_{i}.fc" for i in range(1 + len(DIMENSIONS))],
            pooling="mean",
            base=self._base(folder),
        )
        self._sizes = network.sizes
        return network

    def known_labels(self) -> list[Any] | None:
        return [str(name) for name in self._maps["task_type_map"].values()] if self._maps else None

    def columns(self, rows: np.ndarray[Any, Any]) -> Mapping[str, Any]:
        if not len(rows):  # of the types that they have else: a column has one type, however documents are cut
            return {name: pa.array([], pa.string() if name in _NAMES else pa.float64()) for name in OUTPUT_FIELDS}
        logits = np.split(rows, np.cumsum(self._sizes)[:-1], axis=1)
        columns: dict[str, Any] = {}
        for (name, share), own in zip(DIMENSIONS.items(), logits[1:], strict=True):
            weights = np.asarray(self._maps["weights_map"][name], np.float64)
            scores = np.round(softmax(own) @ weights / float(self._maps["divisor_map"][name]), 4)
            columns[name] = (
                np.where(scores >= _SHOTS_AT_LEAST, scores, 0.0) if name == "number_of_few_shots" else scores
            )
            columns["prompt_complexity_score"] = columns.get("prompt_complexity_score", 0.0) + share * columns[name]
        columns["prompt_complexity_score"] = np.round(columns["prompt_complexity_score"], 5)
        return {name: columns.get(name) for name in OUTPUT_FIELDS} | self._tasks(logits[0])

    def _tasks(self, logits: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Return the most likely task type with its probability, and the second, "NA" if that is unlikely."""
        chances = softmax(logits)
        best = np.argsort(-chances, axis=1, kind="stable")[:, :2]
        sure = np.round(np.take_along_axis(chances, best, 1), 3)
        names = [[str(self._maps["task_type_map"][str(i)]) for i in row] for row in best.tolist()]
        return {
            "task_type_1": [first for first, _ in names],
            "task_type_2": [
                second if p >= _SECOND_AT_LEAST else "NA" for (_, second), p in zip(names, sure[:, 1], strict=True)
            ],
            "task_type_prob": sure[:, 0],
        }


@dataclass(repr=False)
class PromptTaskComplexityClassifier(Classifier):
    """The task type of an English prompt, and its complexity: an overall score and seven dimensions (DeBERTa).

    At most 512 tokens of a prompt are read.

    `filter_by`: kinds of tasks (task_type_1) of the documents that stay.
    """

    cache_dir: str | None = None
    text_field: str = "text"
    filter_by: list[str] | None = None
    max_chars: int | None = None
    sort_by_length: bool = True
    model_inference_batch_size: int = 256
    autocast: bool = True
    keep_tokens: bool = False
    use_existing_tokens: bool = False
    model_identifier: str = field(default=PROMPT_TASK_COMPLEXITY_MODEL_IDENTIFIER, kw_only=True)
    max_seq_length: int | None = field(default=512, kw_only=True)
    hf_token: str | None = field(default=None, kw_only=True)
    trust_remote_code: bool = field(default=False, kw_only=True)
    label_field = "task_type_1"

    def model_stage(self) -> ModelStage:
        return PromptTaskComplexityModelStage(model_identifier=self.model_identifier, **self.settings())
