"""Deduplication of pictures: by their pixels."""
