"""Scaling images."""
