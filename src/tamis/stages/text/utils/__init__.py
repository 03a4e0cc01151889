"""Small functions over texts, for filters and stages of one's own."""
