"""Decides what happens next in a run. Pure: no files, no clock, no processes, no numpy."""
