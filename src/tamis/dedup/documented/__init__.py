"""Deduplication under the names, parameters and files that users of NeMo Curator know; the work is done by the rooms beside."""
