"""Joining segments of documents wherever they lie in the input."""
