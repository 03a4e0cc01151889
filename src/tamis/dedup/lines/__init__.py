"""Lines and paragraphs that occurred before, cut out of documents."""
