"""Settings for the whole suite."""

import os
import sys
from pathlib import Path

from hypothesis import settings

# Numbers fitted by one test must not steer the next one.
os.environ["TAMIS_PROFILES"] = "off"
sys.path.insert(0, str(Path(__file__).parent / "support"))

# The same examples every time, on every machine; `HYPOTHESIS=new make test` looks for new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("new", max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))
