"""Clips as vectors."""
