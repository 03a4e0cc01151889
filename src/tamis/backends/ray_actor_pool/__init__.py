"""RayActorPoolExecutor: plain Ray actors, one on every node."""

from tamis.backends.ray_actor_pool.executor import RayActorPoolExecutor

__all__ = ["RayActorPoolExecutor"]
