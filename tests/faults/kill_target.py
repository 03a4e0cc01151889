"""The run that test_kills.py kills: a plain script without a __main__ guard, as users write them.

kill_target.py INPUT OUTPUT MEMORY WORKERS BLOCKSIZE SECONDS_PER_BATCH
"""

from __future__ import annotations

import sys

from fault_stages import AddLength, DropOdd, Slow

from tamis import LocalExecutor, Pipeline
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.writer import JsonlWriter

source, output, memory, workers, blocksize, seconds = sys.argv[1:]
pipeline = Pipeline("killed")
pipeline.add_stage(DocumentReader(source, blocksize=None if blocksize == "none" else blocksize))
pipeline.add_stage(AddLength()).add_stage(DropOdd()).add_stage(Slow(float(seconds))).add_stage(JsonlWriter(output))
pipeline.run(LocalExecutor(), memory=memory, workers=int(workers))
print("finished")
