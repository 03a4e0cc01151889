"""Passages that occur more than once, in the same or in different documents, cut out of documents."""
