"""Clips in words."""
