"""Decontamination: remove from a corpus what it shares with evaluation sets."""
