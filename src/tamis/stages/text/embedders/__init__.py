"""Embeddings of texts. Importing this loads neither torch nor transformers: a model is loaded when a run begins."""

from tamis.stages.text.embedders.base import (
    EmbeddingCreatorStage,
    EmbeddingModelStage,
    SentenceTransformerEmbeddingModelStage,
)
from tamis.stages.text.embedders.vllm import VLLMEmbeddingModelStage

__all__ = [
    "EmbeddingCreatorStage",
    "EmbeddingModelStage",
    "SentenceTransformerEmbeddingModelStage",
    "VLLMEmbeddingModelStage",
]
