"""Pinned host buffers and asynchronous copies from host to device."""

from __future__ import annotations

from typing import Any

from tamis._lazy import torch


def ready(numbers: Any, device: torch.device | str) -> torch.Tensor:
    """Prepare a list, an array or a tensor on the host so that `moved` is fast; the device is not needed."""
    tensor = torch.as_tensor(numbers)
    return tensor if torch.device(device).type == "cpu" else tensor.pin_memory()


def moved(numbers: Any, device: torch.device | str) -> torch.Tensor:
    """Return a list, an array or a tensor of numbers as a tensor on a device."""
    tensor = torch.as_tensor(numbers)
    if torch.device(device).type == tensor.device.type:
        return tensor
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)
