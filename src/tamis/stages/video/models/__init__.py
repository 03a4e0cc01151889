"""Networks of the video stages, and locations of their weights."""
