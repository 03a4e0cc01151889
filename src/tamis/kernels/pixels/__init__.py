"""Scaling pictures."""
