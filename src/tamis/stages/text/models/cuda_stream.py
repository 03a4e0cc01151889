"""Ordering of cupy kernels and torch kernels on one device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tamis._lazy import torch


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
