"""Embeddings of images."""

from tamis.stages.image.embedders.clip_embedder import ImageEmbeddingStage

__all__ = ["ImageEmbeddingStage"]
