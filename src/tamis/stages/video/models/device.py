"""Device (a GPU if there is one, else a core) and weight files of video stages with a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tamis.errors import UsageError, optional
from tamis.memory import device_limits
from tamis.memory.gpu import count_gpus
from tamis.stages.resources import Resources
from tamis.stages.text.models.device import TorchDevice, choose_device

_NETWORK_GB = 16.0  # of a GPU, requested for a network of videos


def gpu_memory(gpu_memory_gb: float, default: float) -> Resources:
    """Return the amount of GPU memory that the user chose if this machine has a GPU, else a core.

    The default of the parameter requests 16 GB, as the resource guide of NeMo Curator says.
    """
    memory_gb = _NETWORK_GB if gpu_memory_gb == default else float(gpu_memory_gb)
    return Resources(cpus=1.0, gpu_memory_gb=memory_gb) if count_gpus() else Resources(cpus=1.0)


def torch_device(stage: str, resources: Resources) -> TorchDevice:
    """Return the device of this worker.

    On the CPU one thread is used: workers are the parallelism, and threads would not survive a fork.
    """
    torch = optional("torch", stage, "models")
    kind = choose_device(resources.requires_gpu)
    if kind == "cpu":
        torch.set_num_threads(1)
    return TorchDevice(kind, device_limits.assigned_limit())


def weights_file(model_dir: str | None, repository: str, names: Sequence[str]) -> Path:
    """Return a file of weights: in `model_dir`, or below it under the id of its repository.

    Without a folder, it is taken from the hub's cache or the hub.
    """
    if model_dir is not None:
        folder = Path(os.path.expanduser(model_dir))
        tried = [place / name for place in (folder / repository, folder) for name in names]
        existing = next((path for path in tried if path.is_file()), None)
        if existing is None:
            raise UsageError(
                f"there is neither {tried[0]} nor {tried[len(names)]}; put {names[0]} of {repository} there"
            )
        return existing
    names_of = ("huggingface_hub", "huggingface_hub.errors")
    hub, errors = (optional(module, f"the weights of {repository}", "models") for module in names_of)
    for local in (True, False):
        try:
            return Path(hub.hf_hub_download(repository, names[0], local_files_only=local))
        except (errors.LocalEntryNotFoundError, errors.HfHubHTTPError, OSError) as exc:
            why: Any = exc
    raise UsageError(
        f"{names[0]} of {repository} is neither in the local cache nor can it be downloaded ({type(why).__name__}); "
        "give model_dir, a folder "
        "that holds it"
    )


def model_folder(
    model_dir: str, identifier: str, default: str, with_code: bool = False, find: Callable[..., Path] | None = None
) -> Path:
    """Return the folder of a transformers model: `model_dir` itself, or the subfolder named by the model's id.

    If `model_dir` is the default and does not exist, use the hub's cache, or the hub. `find`: `pretrained.local`
    for callers that must not access the hub.
    """
    from tamis.stages.image.models import model_place
    from tamis.stages.text.models import folder as folders

    if model_dir == default and not Path(model_dir).is_dir():
        return (find or folders.fetch)(identifier, with_code=with_code)
    return (find or folders.fetch)(model_place(model_dir, identifier), with_code=with_code)
