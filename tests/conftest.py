"""Settings for the whole suite."""

import os

# Numbers fitted by one test must not steer the next one.
os.environ["TAMIS_PROFILES"] = "off"
