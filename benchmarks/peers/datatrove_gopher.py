"""datatrove's Gopher rules over a folder of JSONL, on two cores: `python datatrove_gopher.py IN OUT LOGS`.

Runs in datatrove's own environment. The filters are in the order of Tamis' set; output is not compressed.
"""

from __future__ import annotations

import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter


def main() -> int:
    source, target, logs = sys.argv[1:]
    steps = [
        JsonlReader(source),
        GopherQualityFilter(),
        GopherRepetitionFilter(),
        JsonlWriter(target, compression=None),
    ]
    LocalPipelineExecutor(pipeline=steps, tasks=2, workers=2, logging_dir=logs).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
