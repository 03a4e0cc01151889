"""A run with one hostile stage, for somebody outside to look at. usage: python hostile_run.py KIND MB BUDGET FOLDER"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(__file__))


def main(kind: str, mb: int, budget: str, folder: Path) -> int:
    from fault_harness import documents, make_pipeline, write_lines
    from hostile_stages import Hostile

    from tamis import LocalExecutor
    from tamis.errors import TamisError

    write_lines(folder / "in" / "a.jsonl", documents(3))
    stage = Hostile(kind, mb=mb, path=str(folder / "big"))
    try:
        make_pipeline(folder / "in", folder / "out", [stage]).run(LocalExecutor(), memory=budget)
    except TamisError as exc:
        print(exc)
        return exc.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])))
