"""Numbers on their way to a GPU, from memory that it may read by itself: nobody waits for the work that it still has."""

from __future__ import annotations

from typing import Any

from tamis.later import torch


def ready(numbers: Any, device: torch.device | str) -> torch.Tensor:
    """A list, an array or a tensor of this machine as `moved` is soonest done with it; the device is not needed for that."""
    made = torch.as_tensor(numbers)
    return made if torch.device(device).type == "cpu" else made.pin_memory()


def moved(numbers: Any, device: torch.device | str) -> torch.Tensor:
    """A list, an array or a tensor of numbers on a device."""
    made = torch.as_tensor(numbers)
    if torch.device(device).type == made.device.type:
        return made
    return (made if made.is_pinned() else made.pin_memory()).to(device, non_blocking=True)
