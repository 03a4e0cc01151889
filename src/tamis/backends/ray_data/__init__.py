"""RayDataExecutor: leases stream through Ray Data."""

from tamis.backends.ray_data.executor import RayDataExecutor

__all__ = ["RayDataExecutor"]
