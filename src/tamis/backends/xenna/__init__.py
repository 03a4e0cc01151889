"""XennaExecutor: a Cosmos Xenna pipeline."""

from tamis.backends.xenna.executor import XennaExecutor

__all__ = ["XennaExecutor"]
