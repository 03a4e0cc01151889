"""Classifiers of educational value: a number from 0 to 5, as a whole number, and as a label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.stages.text.classifiers.base import Classifier
from tamis.stages.text.models import folder as folders
from tamis.stages.text.models.device import TorchDevice
from tamis.stages.text.models.model import ModelStage, Network
from tamis.stages.text.models.utils import TOKENS

FINEWEB_EDU_MODEL_IDENTIFIER = "HuggingFaceFW/fineweb-edu-classifier"
FINEWEB_MIXTRAL_IDENTIFIER = "nvidia/nemocurator-fineweb-mixtral-edu-classifier"
FINEWEB_NEMOTRON_IDENTIFIER = "nvidia/nemocurator-fineweb-nemotron-4-edu-classifier"
HIGH_QUALITY = 2.5
_BEST = 5.0
_HIGH, _LOW = "high_quality", "low_quality"


class FineWebModelStage(ModelStage):
    """A regression: a model with one output."""

    columns_out = ("label_field", "float_score_field", "int_score_field")

    def __init__(
        self,
        model_identifier: str,
        cache_dir: str | None = None,
        label_field: str = "preds",
        float_score_field: str = "float_score",
        int_score_field: str = "int_score",
        model_inference_batch_size: int = 256,
        has_seq_order: bool = True,
        autocast: bool = True,
        keep_tokens: bool = False,
        max_seq_length: int | None = 512,
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
        self.label_field, self.float_score_field, self.int_score_field = label_field, float_score_field, int_score_field

    def load(self, folder: folders.ModelFolder, device: TorchDevice) -> Network:
        from tamis.stages.text.models.networks import SequenceClassifier

        network = SequenceClassifier(folder, device, self._max_tokens, self.autocast, self.trust_remote_code)
        if network.n_outputs != 1:
            raise UsageError(
                f"model folder {folder.path}: expected a regression with 1 output, got {network.n_outputs} outputs"
            )
        return network

    def known_labels(self) -> list[Any] | None:
        return [_HIGH, _LOW]

    def columns(self, rows: np.ndarray[Any, Any]) -> Mapping[str, Any]:
        scores = np.clip(rows.reshape(-1).astype(np.float64), 0.0, _BEST)
        labels = np.where(scores >= HIGH_QUALITY, _HIGH, _LOW)
        return {
            self.label_field: pa.array(labels.tolist(), pa.large_string()),
            self.float_score_field: pa.array(scores),
            self.int_score_field: pa.array(np.round(scores).astype(np.int64)),
        }


@dataclass(repr=False)
class FineWebEduClassifier(Classifier):
    """How educational a text is, from 0 to 5: a number, the nearest integer, and high_quality from 2.5 (BERT).

    At most 512 tokens of a text are read.
    """

    cache_dir: str | None = None
    label_field: str = "fineweb-edu-score-label"
    float_score_field: str = "fineweb-edu-score-float"
    int_score_field: str = "fineweb-edu-score-int"
    text_field: str = "text"
    filter_by: list[str] | None = None
    max_chars: int | None = None
    sort_by_length: bool = True
    model_inference_batch_size: int = 256
    autocast: bool = True
    keep_tokens: bool = False
    use_existing_tokens: bool = False
    model_identifier: str = field(default=FINEWEB_EDU_MODEL_IDENTIFIER, kw_only=True)
    max_seq_length: int | None = field(default=512, kw_only=True)
    hf_token: str | None = field(default=None, kw_only=True)
    trust_remote_code: bool = field(default=False, kw_only=True)

    def model_stage(self) -> ModelStage:
        return FineWebModelStage(
            self.model_identifier,
            label_field=self.label_field,
            float_score_field=self.float_score_field,
            int_score_field=self.int_score_field,
            **self.settings(),
        )


@dataclass(repr=False)
class FineWebMixtralEduClassifier(FineWebEduClassifier):
    """How educational a text is, as FineWebEduClassifier, trained on the judgements of Mixtral 8x22B."""

    label_field: str = "fineweb-mixtral-edu-score-label"
    float_score_field: str = "fineweb-mixtral-edu-score-float"
    int_score_field: str = "fineweb-mixtral-edu-score-int"
    model_inference_batch_size: int = 1024
    model_identifier: str = field(default=FINEWEB_MIXTRAL_IDENTIFIER, kw_only=True)


@dataclass(repr=False)
class FineWebNemotronEduClassifier(FineWebEduClassifier):
    """How educational a text is, as FineWebEduClassifier, trained on the judgements of Nemotron-4-340B."""

    label_field: str = "fineweb-nemotron-edu-score-label"
    float_score_field: str = "fineweb-nemotron-edu-score-float"
    int_score_field: str = "fineweb-nemotron-edu-score-int"
    model_inference_batch_size: int = 1024
    model_identifier: str = field(default=FINEWEB_NEMOTRON_IDENTIFIER, kw_only=True)
