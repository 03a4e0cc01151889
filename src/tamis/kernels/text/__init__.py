"""Kernels that read documents: one row of a string column in, numbers about it out."""
