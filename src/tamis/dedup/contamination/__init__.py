"""Decontamination: what a corpus shares with evaluation sets, so that models are not tested on what they read."""
