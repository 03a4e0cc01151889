"""Memory of GPUs, in numbers. Deduplication itself runs on the CPU."""

from __future__ import annotations

from tamis.errors import UsageError, install_command

__all__ = ["align_down_to_256", "get_device_free_memory"]


def align_down_to_256(memory_size: int) -> int:
    """Return the largest multiple of 256 that is not above a number."""
    return memory_size // 256 * 256


def get_device_free_memory() -> int:
    """Return the free bytes of the first GPU; raise UsageError without one."""
    from tamis.memory.gpu import find_gpus

    source = find_gpus()
    if source is None:
        raise UsageError(
            "get_device_free_memory: there is no NVIDIA GPU, or its library is not installed; "
            f"install it with: {install_command('gpu')}"
        )
    try:
        first = source.sample()[0]
    finally:
        source.close()
    return first.total_bytes - first.used_bytes
