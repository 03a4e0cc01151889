"""Compiled functions over columns of bytes and numbers, each with a plain Python function around it."""


class _Compiling:
    """What this process compiles, if anything: set before any kernel module is imported (compile.py)."""

    level = ""  # the CPU level, or nothing
    modules: frozenset[str] = frozenset()  # whose kernels; those of others are compiled only where these call them


compiling = _Compiling()
