"""Compiled functions over columns of bytes and numbers, each with a plain Python function around it.

The kernels: records/ (JSON lines, hashes; every job needs them), text/ (statistics of texts, fastText), sketch/ (near-duplicates), pixels/ (scaling images). What
they are written with is in language/, how they are compiled in building/ and compile.py, how libraries are found and called in loading/.
"""


class _Compiling:
    """What this process compiles, if anything: set before any kernel module is imported (kernels/compile.py)."""

    level = ""  # the CPU level, or nothing
    modules: frozenset[str] = frozenset()  # whose kernels; those of others are compiled only where these call them


compiling = _Compiling()
