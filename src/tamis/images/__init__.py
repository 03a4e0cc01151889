"""Images: locations in tars, headers, and pixels. Knows nothing of stages or runs."""
