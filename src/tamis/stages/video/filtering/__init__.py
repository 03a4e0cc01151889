"""Clips that stay: those that move, and those that look good."""
