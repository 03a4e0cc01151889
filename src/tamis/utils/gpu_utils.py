"""GPUs of this machine."""

from __future__ import annotations

from tamis.memory.gpu import count_gpus


def get_gpu_count() -> int:
    """Return the number of GPUs of this machine."""
    return count_gpus()
