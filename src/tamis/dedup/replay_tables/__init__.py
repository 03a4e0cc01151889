"""Verdicts of the steps before a deduplication, recorded by position so that later passes replay them."""
