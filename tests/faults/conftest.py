"""Makes the helpers of this folder importable, here and in the worker processes (which inherit sys.path)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
