"""Semantic duplicates: documents whose embeddings point the same way, found within clusters of like ones."""
