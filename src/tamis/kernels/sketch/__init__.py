"""Kernels of fuzzy deduplication: sketches of documents, their similarity, sorting of keys, connected components."""
