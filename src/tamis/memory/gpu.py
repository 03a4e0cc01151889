"""GPUs of this machine, without importing anything that touches them."""

from __future__ import annotations

import os


def count_gpus() -> int:
    """NVIDIA devices that processes of ours may use (CUDA_VISIBLE_DEVICES respected)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([d for d in visible.split(",") if d.strip() and d.strip() != "-1"])
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0
