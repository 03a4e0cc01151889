"""Deduplication of images: by their pixels."""
