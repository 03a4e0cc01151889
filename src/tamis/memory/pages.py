"""Giving back pages of libraries that were needed once.

Loading compiled kernels touches some 70 MB of LLVM's code and another 60 MB of other libraries, of which workers use a
fraction afterwards. Clean, read-only pages of files can be dropped from a process at any time: the kernel reads them
again (from its cache) when they are touched. Measured: a forking server goes from 235 to 100 MB (PSS), and takes back
20 MB at work.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_MADV_DONTNEED = 4


@dataclass
class _Mapping:
    start: int
    end: int
    droppable: bool
    resident_kb: int = 0
    dirty_kb: int = 0


def drop_clean_pages() -> int:
    """Drop this process's clean pages of read-only file mappings; returns how many bytes were resident."""
    try:
        madvise = ctypes.CDLL(None, use_errno=True).madvise
        mappings = _read_mappings()
    except (OSError, AttributeError):
        return 0
    dropped = 0
    for m in mappings:
        # Pages that were written to (relocations) would come back as they are in the file: never drop those.
        if (
            m.droppable
            and m.resident_kb
            and not m.dirty_kb
            and not madvise(ctypes.c_void_p(m.start), ctypes.c_size_t(m.end - m.start), _MADV_DONTNEED)
        ):
            dropped += m.resident_kb * 1024
    return dropped


def _read_mappings() -> list[_Mapping]:
    mappings: list[_Mapping] = []
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as file:
        for line in file:
            first = line.split(None, 1)[0]
            if first.endswith(":"):
                if first == "Rss:":
                    mappings[-1].resident_kb = int(line.split()[1])
                elif first in ("Private_Dirty:", "Shared_Dirty:", "Anonymous:"):
                    mappings[-1].dirty_kb += int(line.split()[1])
            else:
                span, rights, _, _, inode = line.split()[:5]
                start, _, end = span.partition("-")
                readonly_file = rights[1] == "-" and rights[3] == "p" and inode != "0"
                mappings.append(_Mapping(int(start, 16), int(end, 16), readonly_file))
    return mappings
