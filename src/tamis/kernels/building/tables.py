"""`python -m tamis.kernels.building.tables FOLDER`: put the Unicode table of this Python into a folder. Part of the build of a package."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    from tamis.kernels.text import _unicode

    _unicode.keep(Path(sys.argv[1]), *_unicode.build())
    return 0


if __name__ == "__main__":
    sys.exit(main())
