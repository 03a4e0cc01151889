"""Exact duplicates: documents whose texts are equal, byte by byte or after a named normalisation."""
