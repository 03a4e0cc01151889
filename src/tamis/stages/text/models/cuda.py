"""Asynchronous copies from pinned host memory to a device, and cupy kernels in order with those of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def in_turn_with_torch(device: torch.device) -> Iterator[None]:
    """Order cupy kernels in this block after the work that torch has queued on the device, and before what follows.

    Use it around all layers of a network, not around each kernel: it takes as long as a launch. It does nothing on a
    CPU, or without cupy, and so without a kernel.
    """
    if device.type != "cuda":
        yield
        return
    try:
        import cupy
    except ImportError:
        yield
        return
    with cupy.cuda.Device(device.index or 0), cupy.cuda.Stream.from_external(torch.cuda.current_stream(device)):
        yield
