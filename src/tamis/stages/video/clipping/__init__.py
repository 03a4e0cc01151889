"""Boundaries of clips, their encoding, and the choice of their frames."""
