"""Compiled functions over columns of bytes and numbers, each with a plain Python function around it."""

compiling: frozenset[str] | None = None
"""The groups that this process compiles; set before any of their modules is imported (compile.py)."""
