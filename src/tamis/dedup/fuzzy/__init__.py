"""Near duplicates: sketches of shingles, bands, candidates, and which of them really resemble each other."""
