"""Measurements of a run in progress, and the database they are written to."""
