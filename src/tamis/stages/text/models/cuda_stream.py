"""Kernels of our own beside those of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tamis._lazy import torch


@contextmanager
def in_turn_with_torch(device: torch.device) -> Iterator[None]:
    """Inside this block kernels that cupy starts run behind what torch has started on the device, and before what it
    starts next. Around all layers of a network, not around each kernel: it takes as long as starting one. Nothing on a
    CPU, nor where there is no cupy, and so no kernel.
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
