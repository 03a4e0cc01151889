"""The public path of PairwiseCosineSimilarityStage; the code is in tamis/dedup/semantic."""

from tamis.dedup.semantic.stages import PairwiseCosineSimilarityStage, PairwiseStage, pairwise_cosine_similarity_batched

__all__ = ["PairwiseCosineSimilarityStage", "PairwiseStage", "pairwise_cosine_similarity_batched"]
