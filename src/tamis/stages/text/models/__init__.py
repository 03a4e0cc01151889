"""Models of classifiers and embedders: their folders, tokenizers, networks, batches and devices."""
