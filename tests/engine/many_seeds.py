"""The simulation of the supervisor over many seeds, in several processes: `make torture-simulation SEEDS=100000`.

    python -m tests.engine.many_seeds --seeds 100000 [--first 300] [--processes 2] [--minutes 38]

Prints a line of progress every ten seconds, and at the end the seeds that failed, each with its reason, and the faults
that never fired. Exit code 1 where there are any. Ends when the time is up, and says how far it came.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from tests.engine.test_simulation import MUST_FIRE, run_seed

CHUNK = 50
PROGRESS_S = 10.0


def run_chunk(seeds: range) -> tuple[int, Counter[str], list[str]]:
    """Run these seeds; return their number, the faults that fired, and a line for each seed that failed."""
    fired, failed = Counter[str](), []
    for seed in seeds:
        try:
            run_seed(seed, fired)
        except Exception as exc:
            failed.append(f"seed {seed}: {type(exc).__name__}: {exc}")
    return len(seeds), fired, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=300, help="the default suite runs those before it")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=38.0, help="stop after so long")
    asked = parser.parse_args()
    end = asked.first + asked.seeds
    chunks = [range(at, min(at + CHUNK, end)) for at in range(asked.first, end, CHUNK)]
    fired, failed, n_done = Counter[str](), list[str](), 0
    started_s = told_s = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for n, more, reasons in pool.imap(run_chunk, chunks):
            n_done, fired = n_done + n, fired + more
            failed += reasons
            for reason in reasons:
                print(reason, flush=True)
            now_s = time.monotonic()
            if now_s - told_s >= PROGRESS_S or n_done == asked.seeds:
                told_s, rate = now_s, n_done / (now_s - started_s)
                left_s = (asked.seeds - n_done) / rate
                print(
                    f"{n_done:,} of {asked.seeds:,} seeds, {rate:.0f}/s, {len(failed)} failed, {left_s / 60:.1f} min "
                    "left",
                    flush=True,
                )
            if now_s - started_s > 60 * asked.minutes:
                pool.terminate()
                break
    missing = [name for name in MUST_FIRE if not fired[name]] if n_done >= 300 else []
    seconds = time.monotonic() - started_s
    print(f"\n{n_done:,} seeds in {seconds:.0f} s ({n_done / seconds:.0f}/s): {len(failed)} failed")
    for reason in failed:
        print(f"  {reason[:300]}")
    if missing:
        print(f"faults that never fired: {', '.join(missing)}")
    if n_done < asked.seeds:
        print(f"the time was up: seeds from {asked.first + n_done} on were not run (--first)")
    return 1 if failed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
