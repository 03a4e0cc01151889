"""The public path of RankingStrategy; the code is in tamis/dedup/semantic."""

from tamis.dedup.semantic.ranking import RankingStrategy

__all__ = ["RankingStrategy"]
