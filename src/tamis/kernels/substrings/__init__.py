"""Kernels of substring deduplication: which k-gram each window of a text selects, and which windows are equal."""
