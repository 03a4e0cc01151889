"""Removal of documents that a deduplication found."""
