"""Names that the stages of one model share."""

from __future__ import annotations

from collections.abc import Callable

from tamis.memory.gpu import count_gpus
from tamis.sizes import check_optional_integer
from tamis.stages.resources import Resources

TOKENS = "_tamis_input_ids"  # the column between tokenizer and model: users may have an input_ids of their own
INPUT_IDS, ATTENTION_MASK = "input_ids", "attention_mask"  # what keep_tokens writes and use_existing_tokens reads

_SMALL_BYTES, _LARGE_BYTES = 300_000_000, 2_000_000_000  # of weights, on disk


def format_name_with_suffix(model_identifier: str, suffix: str = "_classifier") -> str:
    """Return the name of a stage, derived from that of its model.

    >>> format_name_with_suffix("nvidia/quality-classifier-deberta", "_model")
    'quality_classifier_deberta_model'
    >>> format_name_with_suffix("/models/My.Model/")
    'my_model_classifier'
    """
    name = model_identifier.rstrip("/").rpartition("/")[2]
    return name.replace("-", "_").replace(".", "_").lower() + suffix


def check_max_chars(owner: str, max_chars: int | None) -> None:
    """Raise UsageError for a limit of characters below 1: -5 would leave out the last five, 0 everything."""
    check_optional_integer(max_chars, f"{owner}: max_chars")


def model_resources(weights: Callable[[], int] | None = None) -> Resources:
    """Return the resources that a model's stage requests: a GPU if this machine has one, else a core.

    `weights`: bytes of the model, 0 if not known yet.

    Several workers of a small model share a device and take turns on it (memory/device_limits.py), so that it does not
    wait while one of them reads and passes on results; as many as the host needs to be ready in time, since a
    small model is soon done. A large model would fill the device twice.
    """
    if not count_gpus():
        return Resources(cpus=1.0)
    n_bytes = weights() if weights is not None else 0
    return Resources(cpus=1.0, gpus=share_of_gpu(n_bytes))


def share_of_gpu(weights_bytes: int) -> float:
    """Return the share of a device that one worker of a model takes.

    >>> [share_of_gpu(n) for n in (90_000_000, 740_000_000, 13_500_000_000, 0)]
    [0.25, 0.5, 1.0, 1.0]
    """
    if not 0 < weights_bytes <= _LARGE_BYTES:
        return 1.0
    return 0.25 if weights_bytes <= _SMALL_BYTES else 0.5
