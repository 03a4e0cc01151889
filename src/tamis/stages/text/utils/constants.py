"""Constants that users of NeMo Curator import. The filters here do not use them: kernels count in their place."""

from __future__ import annotations

import re

regex_url = re.compile(r"https?://(?:[\w$\-@.&+/:=?#~!*(),]|%[0-9A-Fa-f]{2})+", re.ASCII)
