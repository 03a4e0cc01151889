"""Compiled functions over columns of bytes and numbers, each with a plain Python function around it.

Kernels: records/ (JSON lines and hashes, which every job needs), text/ (statistics of texts, fastText), sketch/
(near-duplicates), pixels/ (scaling images), tokens/ (token ids). The language that they are written in is in
language/; building/ and compile.py compile them into shared libraries; loading/ finds and calls these.
"""


class _Compiling:
    """What this process compiles, if anything: set before any kernel module is imported (kernels/compile.py)."""

    level = ""  # the CPU level, or nothing
    modules: frozenset[str] = frozenset()  # whose kernels; those of others are compiled only where these call them


compiling = _Compiling()
