"""What pytest does not look into for examples."""

from importlib.util import find_spec
from pathlib import Path

# Files at the paths of the original that tell what to use instead: importing one is an error, and meant to be.
collect_ignore = [
    str(path)
    for path in (Path(__file__).parent / "src").rglob("*.py")
    if path.read_bytes().startswith(b'"""Not part of Tamis;')
]
if find_spec("torch") is None:  # its examples make tensors
    collect_ignore.append(str(Path(__file__).parent / "src/tamis/stages/text/models/disentangled_attention.py"))
