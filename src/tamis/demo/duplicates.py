"""`python -m tamis.demo.duplicates FINGERPRINTS LISTING`: the places of all but the first copy of each text.

Enough for a demo: 32 bytes per document in memory.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq


def list_duplicates(fingerprints: str, listing: str) -> int:
    table = ds.dataset(fingerprints, format="parquet", exclude_invalid_files=False).to_table()
    hi, lo, file, offset = (table[name].to_numpy() for name in ("hi", "lo", "file", "offset"))
    order = np.lexsort((offset, file, lo, hi))
    same = (np.diff(hi[order]) == 0) & (np.diff(lo[order]) == 0)
    later = order[1:][same]
    pq.write_table(pa.table({"file": file[later], "offset": offset[later]}), listing)
    return len(later)


if __name__ == "__main__":
    print(list_duplicates(sys.argv[1], sys.argv[2]))
