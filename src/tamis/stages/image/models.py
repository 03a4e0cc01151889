"""Locations and requirements of the models of the image stages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tamis.errors import MissingExtra, UsageError, first_line
from tamis.failures import is_memory_failure
from tamis.memory.gpu import count_gpus
from tamis.stages.resources import Resources

CLIP = "openai/clip-vit-large-patch14"
AESTHETIC = "ttj/sac-logos-ava1-l14-linearMSE"
NSFW = "laion/clip-autokeras-binary-nsfw"


def image_resources(num_gpus_per_worker: float) -> Resources:
    """Return a share of a GPU if this machine has one, else a core.

    The resources are the same for all image stages, so that they run fused.
    """
    if isinstance(num_gpus_per_worker, bool) or not float(num_gpus_per_worker) >= 0:
        raise UsageError(f"num_gpus_per_worker: expected a number from 0 on, got {num_gpus_per_worker!r}")
    return Resources(cpus=1.0, gpus=float(num_gpus_per_worker) if count_gpus() else 0.0)


def check_batch_size(stage: str, n: Any) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise UsageError(f"{stage}: model_inference_batch_size must be a whole number above 0, got {n!r}")


def model_place(model_dir: str | None, identifier: str) -> str:
    """Return the folder of a model: `model_dir` itself, or the subfolder named by the model's id.

    Return the id if no folder is given.
    """
    if model_dir is None:
        return identifier
    folder = Path(os.path.expanduser(model_dir))
    below = folder / identifier
    if below.is_dir():
        return str(below)
    if not folder.is_dir():
        raise UsageError(f"model_dir: there is no folder {folder}")
    return str(folder)


def read_weights(path: Path) -> dict[str, Any]:
    """Return arrays by name from safetensors, or from a torch file without running any code in it (weights_only)."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            return dict(load_file(str(path)))
        import torch
    except ImportError:
        raise MissingExtra(f"the weights {path}", "models") from None
    except Exception as exc:
        if is_memory_failure(exc):
            raise
        raise UsageError(f"{path} cannot be read as safetensors: {first_line(exc)}") from None
    try:
        arrays = torch.load(str(path), map_location="cpu", weights_only=True)
        return {str(k): v.float().numpy() for k, v in dict(arrays).items()}
    except Exception as exc:
        if is_memory_failure(exc):
            raise
        raise UsageError(
            f"{path} holds no plain weights ({first_line(exc)}); nothing else is loaded from a file of torch"
        ) from None
