"""Resources: the needs of one worker of a stage."""

from __future__ import annotations

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.sizes import check_amount


@dataclass(frozen=True)
class Resources:
    """CPUs, GPU share and memory of one worker; `memory_gb` is a hint only, because the engine measures.

    `gpus` are whole or shared devices; `gpu_memory_gb` requests that much memory on one device. They exclude each
    other.
    """

    cpus: float = 1.0
    gpu_memory_gb: float = 0.0
    gpus: float = 0.0
    memory_gb: float = 0.0

    def __post_init__(self) -> None:
        for name in ("cpus", "gpu_memory_gb", "gpus", "memory_gb"):
            value = getattr(self, name)
            check_amount(value, f"Resources({name}=...)")
        if self.gpus and self.gpu_memory_gb:
            raise UsageError(
                "Resources: give either gpus (a share of devices) or gpu_memory_gb (memory on one device), not both"
            )

    @property
    def requires_gpu(self) -> bool:
        return self.gpus > 0 or self.gpu_memory_gb > 0
