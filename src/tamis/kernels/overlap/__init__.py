"""Overlap of texts: n-grams of normalised words, and the filter that knows which are sought."""
