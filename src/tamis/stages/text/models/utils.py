"""Names that the stages of one model share."""

from __future__ import annotations

from tamis.memory.gpu import count_gpus
from tamis.stages.resources import Resources

TOKENS = "_tamis_input_ids"  # the column between tokenizer and model: users may have an input_ids of their own
INPUT_IDS, ATTENTION_MASK = "input_ids", "attention_mask"  # what keep_tokens writes and use_existing_tokens reads


def format_name_with_suffix(model_identifier: str, suffix: str = "_classifier") -> str:
    """The name of a stage, from that of its model.

    >>> format_name_with_suffix("nvidia/quality-classifier-deberta", "_model"), format_name_with_suffix("/models/My.Model/")
    ('quality_classifier_deberta_model', 'my_model_classifier')
    """
    name = model_identifier.rstrip("/").rpartition("/")[2]
    return name.replace("-", "_").replace(".", "_").lower() + suffix


def model_resources() -> Resources:
    """What the stage of a model asks for: a GPU where this machine has one, else a core."""
    return Resources(cpus=1.0, gpus=1.0) if count_gpus() else Resources(cpus=1.0)
