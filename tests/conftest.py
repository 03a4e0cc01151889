"""Settings for the whole suite."""

import os
import sys
from pathlib import Path

# Numbers fitted by one test must not steer the next one.
os.environ["TAMIS_PROFILES"] = "off"
sys.path.insert(0, str(Path(__file__).parent / "support"))
