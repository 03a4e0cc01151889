"""Exact duplicates: hashes of normalised texts, and groups of equal ones."""
