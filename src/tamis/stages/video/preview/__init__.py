"""Small moving pictures of clips."""
