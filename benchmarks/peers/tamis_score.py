"""Keep every score of the 28-filter English set as a column: `python tamis_score.py IN OUT`.

`tamis filter` would drop a long document by its number of words and compute nothing more. Prints one JSON line.
"""

from __future__ import annotations

import json
import sys

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.stages.text.filters import Score
from tamis.stages.text.filters.nemo_curator import HeuristicEnglish
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter


def main() -> int:
    source, target = sys.argv[1:]
    filters = HeuristicEnglish().filters()
    fields = [f"{i:02d}_{one.name}" for i, one in enumerate(filters)]
    stages = [JsonlReader(source), Score(filters, fields), JsonlWriter(target, fields=["id", *fields])]
    result = Pipeline("score", stages=stages).execute(LocalExecutor(), count_caller=True, memory="512MB", fresh=True)
    print(json.dumps({"written": result.ledger.written.n, "quarantined": result.ledger.quarantined.n}))
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
