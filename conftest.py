"""Make `tests` importable here and in the processes that tests start, and exclude modules from doctest."""

import sys
from importlib.util import find_spec
from pathlib import Path

# Absolute: workers inherit sys.path, and the tests that start them change the current folder.
ROOT = str(Path(__file__).parent)
sys.path.insert(0, ROOT)

# Files at the paths of the original that tell what to use instead: importing one is an error, and meant to be.
collect_ignore = [
    str(path)
    for path in (Path(__file__).parent / "src").rglob("*.py")
    if path.read_bytes().startswith(b'"""Not part of Tamis;')
]
if find_spec("torch") is None:  # its examples make tensors
    collect_ignore.append(str(Path(__file__).parent / "src/tamis/stages/text/models/disentangled_attention.py"))
