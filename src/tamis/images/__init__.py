"""Images: where they lie in tars, what their headers say, and their pixels. Knows nothing of stages or runs."""
