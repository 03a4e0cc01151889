"""Store the Unicode table of the running Python in a folder, as part of building a package.

Run as `python -m tamis.kernels.building.tables FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    from tamis.kernels.text import _unicode

    _unicode.keep(Path(sys.argv[1]), *_unicode.build())
    return 0


if __name__ == "__main__":
    sys.exit(main())
