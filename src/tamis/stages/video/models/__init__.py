"""Networks of the video stages, and where their weights lie."""
