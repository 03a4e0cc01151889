"""The public path of ClusterWiseFilePartitioningStage; the code is in tamis/dedup/semantic."""

from tamis.dedup.semantic.stages import ClusterWiseFilePartitioningStage

__all__ = ["ClusterWiseFilePartitioningStage"]
