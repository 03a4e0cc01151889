"""GPUs of this machine."""

from __future__ import annotations

from tamis.memory.gpu import count_gpus


def get_gpu_count() -> int:
    """How many GPUs this machine has."""
    return count_gpus()
