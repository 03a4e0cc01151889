"""Classifiers: tokenizer (CPU) -> model (GPU, or CPU where there is none) -> filter. Texts are never changed.

`DistributedDataClassifier` runs any model with a classification head, by hub id or folder: one of `transformers`
(AutoModelForSequenceClassification), or an encoder with one linear layer over its first token, as the DeBERTa
models of `QualityClassifier` and similar classifiers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.text.filters.score_filter import Filter
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.device import TorchDevice
from tamis.stages.text.models.label_filter import LabelFilter, has_one_of, refuse_unknown
from tamis.stages.text.models.model import ModelStage, Network
from tamis.stages.text.models.tokenizer import TokenizerStage
from tamis.stages.text.models.utils import INPUT_IDS, TOKENS, format_name_with_suffix
from tamis.tasks import DocumentBatch

# Kinds of models that score the last token of a text.
_READ_TO_THE_END = {
    "bloom", "ctrl", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox",
    "gptj", "llama", "mistral", "mixtral", "mpt", "openai-gpt", "opt", "persimmon", "phi", "phi3", "qwen2", "qwen2_moe",
    "qwen3", "qwen3_moe", "stablelm", "starcoder2", "xlnet",
}  # fmt: skip
_DIGITS = 6  # of a probability: float32 has no more to say


class Classifier(CompositeStage[DocumentBatch, DocumentBatch]):
    """Base of classifiers: a tokenizer, the model stage of a subclass, and a filter.

    Subclasses are dataclasses.

    `max_chars`: of each text so many characters are looked at. `filter_by`: labels of the documents that stay (of
    several labels one is enough); those that the model does not have are refused. `keep_tokens` leaves the token ids as
    input_ids and attention_mask; `use_existing_tokens` takes them from there instead of tokenizing. `model_identifier`:
    another hub id, or the folder of a copy.
    """

    cache_dir: str | None
    label_field: str
    text_field: str
    filter_by: list[str] | None
    max_chars: int | None
    sort_by_length: bool
    model_inference_batch_size: int
    autocast: bool
    keep_tokens: bool
    use_existing_tokens: bool
    model_identifier: str
    max_seq_length: int | None
    hf_token: str | None
    trust_remote_code: bool

    def __post_init__(self) -> None:
        if self.filter_by is not None and (
            isinstance(self.filter_by, str) or not all(isinstance(v, (str, bool)) for v in self.filter_by)
        ):
            raise UsageError(f"{type(self).__name__}: filter_by must be a list of labels, got {self.filter_by!r}")
        self.name = format_name_with_suffix(self.model_identifier)
        self.decompose()  # report wrong parameters now

    @abstractmethod
    def model_stage(self) -> ModelStage:
        """Return the stage that runs the model."""

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        stages: list[ProcessingStage[Any, Any]] = []
        if not self.use_existing_tokens:
            stages.append(self.tokenizer())
        model_stages = self.model_stages()
        if self.filter_by:
            labels = self.wanted_labels()
            if isinstance(model_stages[0], ModelStage):
                model_stages[0].want_labels(labels)
            model_stages.append(Filter(LabelFilter(labels), self.label_field, name=f"{self.name}_filter"))
        for stage in model_stages[1:]:  # in the worker of the model: passing documents on would cost more than these do
            stage.resources = model_stages[0].resources
        return stages + model_stages

    def model_stages(self) -> list[ProcessingStage[Any, Any]]:
        return [self.model_stage()]

    def tokenizer(self) -> TokenizerStage:
        return TokenizerStage(
            self.model_identifier,
            self.cache_dir,
            self.hf_token,
            self.text_field,
            self.max_chars,
            self.max_seq_length,
            sort_by_length=self.sort_by_length,
            trust_remote_code=self.trust_remote_code,
        )

    def settings(self) -> dict[str, Any]:
        """Return the parameters of the model stage."""
        return {
            "cache_dir": self.cache_dir,
            "hf_token": self.hf_token,
            "model_inference_batch_size": self.model_inference_batch_size,
            "has_seq_order": self.sort_by_length,
            "max_seq_length": self.max_seq_length,
            "autocast": self.autocast,
            "keep_tokens": self.keep_tokens,
            "trust_remote_code": self.trust_remote_code,
            "tokens_field": INPUT_IDS if self.use_existing_tokens else TOKENS,
        }

    def wanted_labels(self) -> list[Any]:
        """Return `filter_by` in the labels of the model."""
        return list(self.filter_by or [])

    def filter_by_category(self, value: Any) -> bool:
        """Return True if a document with this label is kept."""
        return self.filter_by is None or has_one_of(value, self.wanted_labels())

    def inputs(self) -> Any:
        return ["data"], [INPUT_IDS if self.use_existing_tokens else self.text_field]

    def outputs(self) -> Any:
        return ["data"], [c for s in self.model_stages() for c in s.output_columns()]


@dataclass(repr=False)
class LabelClassifier(Classifier):
    """A classifier whose model gives one label, and a probability for each label if `score_field` is given."""

    cache_dir: str | None = None
    label_field: str = "preds"
    score_field: str | None = None
    text_field: str = "text"
    filter_by: list[str] | None = None
    max_chars: int | None = None
    sort_by_length: bool = True
    model_inference_batch_size: int = 256
    autocast: bool = True
    keep_tokens: bool = False
    use_existing_tokens: bool = False
    model_identifier: str = field(default="", kw_only=True)
    max_seq_length: int | None = field(default=512, kw_only=True)
    hf_token: str | None = field(default=None, kw_only=True)
    trust_remote_code: bool = field(default=False, kw_only=True)

    def model_stage(self) -> ModelStage:
        return ClassifierModelStage(
            self.model_identifier, label_field=self.label_field, score_field=self.score_field, **self.settings()
        )


class DistributedDataClassifier(LabelClassifier):
    """Any classifier, by the hub id or the folder of its model.

    `label_field` gets the label; `score_field`, if given, the probability of every label in their order. A model with
    one output is a regression: `label_field` gets its number. One for several labels at once gets a list of those at
    0.5 or more. `padding_side` is for models that run code of their own (`trust_remote_code`): any other is padded
    where that changes no score.
    """

    def __init__(
        self,
        model_identifier: str,
        cache_dir: str | None = None,
        label_field: str = "preds",
        score_field: str | None = None,
        text_field: str = "text",
        filter_by: list[str] | None = None,
        max_chars: int | None = None,
        max_seq_length: int | None = None,
        padding_side: str = "right",
        sort_by_length: bool = True,
        model_inference_batch_size: int = 256,
        autocast: bool = True,
        keep_tokens: bool = False,
        use_existing_tokens: bool = False,
        hf_token: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self.padding_side = padding_side
        super().__init__(
            cache_dir,
            label_field,
            score_field,
            text_field,
            filter_by,
            max_chars,
            sort_by_length,
            model_inference_batch_size,
            autocast,
            keep_tokens,
            use_existing_tokens,
            model_identifier=model_identifier,
            max_seq_length=max_seq_length,
            hf_token=hf_token,
            trust_remote_code=trust_remote_code,
        )

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "padding_side": self.padding_side}


class ClassifierModelStage(ModelStage):
    """The model of a classifier with labels."""

    columns_out = ("label_field", "score_field")

    def __init__(
        self,
        model_identifier: str,
        cache_dir: str | None = None,
        label_field: str = "preds",
        score_field: str | None = None,
        model_inference_batch_size: int = 256,
        has_seq_order: bool = True,
        padding_side: str = "right",
        max_seq_length: int | None = None,
        autocast: bool = True,
        keep_tokens: bool = False,
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
            padding_side,
            max_seq_length,
            autocast,
            keep_tokens,
            trust_remote_code,
            tokens_field,
        )
        self.label_field, self.score_field = label_field, score_field
        self._labels: list[str] = []
        self._kind = "single"

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        """Reject labels that config.json does not have before a worker loads weights."""
        if self._wanted and len(labels := self._find().labels) > 1:
            refuse_unknown(self._wanted, labels, self.model_identifier)
        super().setup_on_node(node_info, worker_metadata)

    def load(self, folder: folders.ModelFolder, device: TorchDevice) -> Network:
        from tamis.stages.text.models.networks import HeadedEncoder, SequenceClassifier

        # An encoder and one layer, as its own classes save them; code that the folder names knows better.
        if "fc_dropout" in folder.config and not folder.config.get("auto_map"):
            network: Any = HeadedEncoder(
                folder,
                device,
                self._max_tokens,
                self.autocast,
                prefix="model.",
                heads=["fc"],
                pooling="first",
                base=self._base(folder),
            )
        else:
            network = SequenceClassifier(
                folder, device, self._max_tokens, self.autocast, self.trust_remote_code, self.padding_side
            )
        self._labels = folder.labels if network.n_outputs > 1 else folder.labels[:1]
        if len(self._labels) != network.n_outputs:
            raise UsageError(
                f"model folder {folder.path}: config.json names {len(self._labels)} labels, its weights have "
                f"{network.n_outputs} outputs"
            )
        problem = folder.config.get("problem_type")
        self._kind = (
            "number" if network.n_outputs == 1 else "several" if problem == "multi_label_classification" else "single"
        )
        return network  # type: ignore[no-any-return]

    def known_labels(self) -> list[Any] | None:
        if not self._labels:
            return None
        return [] if self._kind == "number" else self._labels

    def columns(self, rows: np.ndarray[Any, Any]) -> Mapping[str, Any]:
        if self._kind == "number":
            numbers = pa.array(rows.reshape(-1).astype(np.float64))
            return {self.label_field: numbers} | ({self.score_field: numbers} if self.score_field is not None else {})
        if self._kind == "several":
            chances = 1 / (1 + np.exp(-rows.astype(np.float64)))
            labels: Any = [[label for label, p in zip(self._labels, row, strict=True) if p >= 0.5] for row in chances]
            columns = {self.label_field: pa.array(labels, pa.large_list(pa.large_string()))}
        else:
            chances = softmax(rows)
            names = np.array(self._labels, object)[chances.argmax(1)] if len(chances) else []
            columns = {self.label_field: pa.array(list(names), pa.large_string())}
        if self.score_field is not None:
            columns[self.score_field] = pa.array(list(np.round(chances, _DIGITS)), pa.large_list(pa.float64()))
        return columns


def softmax(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return probabilities, one row per document."""
    if not len(rows):
        return rows.astype(np.float64)
    powers = np.exp(rows.astype(np.float64) - rows.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))
