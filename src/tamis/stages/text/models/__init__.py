"""Small models that run on CPU inside a stage, read from their own files without the library that wrote them."""
