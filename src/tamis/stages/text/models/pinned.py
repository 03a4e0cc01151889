"""Numbers on their way to a GPU."""

from __future__ import annotations

from typing import Any

from tamis.later import torch


def moved(numbers: Any, device: torch.device | str) -> torch.Tensor:
    """A list, an array or a tensor of numbers on a device, without waiting for the work that it still has: from pinned memory."""
    made = torch.as_tensor(numbers)
    if torch.device(device).type == "cpu" or made.device.type != "cpu":
        return made
    return made.pin_memory().to(device, non_blocking=True)
