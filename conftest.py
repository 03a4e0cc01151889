"""What pytest does not look into for examples."""

from pathlib import Path

# Files at the paths of the original that tell what to use instead: importing one is an error, and meant to be.
collect_ignore = [
    str(path)
    for path in (Path(__file__).parent / "src").rglob("*.py")
    if path.read_bytes().startswith(b'"""Not part of Tamis;')
]
