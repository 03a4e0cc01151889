"""Join segments of documents from anywhere in the input."""
