"""Files that packages carry: fastText's language model lid.176.ftz in Tamis itself, model weights in other packages.

None of their code is imported, and nothing is downloaded.
"""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

LANGUAGE_MODEL = Path(__file__).with_name("lid.176.ftz")


def installed_file(package: str, name: str) -> str | None:
    """Return the path of a file of this name in an installed package; None if there is none.

    Nothing of the package is imported.
    """
    try:
        installed = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (os.fspath(file.locate()) for file in installed if file.name == name)
    return next(filter(os.path.isfile, paths), None)
