"""`get_client`: workers of this machine, one per GPU or per core, for functions of your own.

And the defaults of runs while it is open.
"""

from __future__ import annotations

from tamis.backends.client import Client, get_client

__all__ = ["Client", "get_client"]
