"""A run directory as a run leaves it, without the run: for tests of what is shown.

Its numbers are made, its shape is real.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.schema import RunFacts

STAGES = ("read", "language", "gopher_quality", "gopher_repetition", "fineweb_quality", "redact_pii", "write")
BUDGET = 2_000_000_000
INPUT = 48_000_000_000
N_CELLS = 1000


def make_run(
    folder: Path,
    seconds: int = 300,
    n_workers: int = 4,
    n_units: int = 400,
    n_gpus: int = 0,
    finished: bool = False,
    rising: bool = False,
    ended_at: float | None = None,
) -> Path:
    """Write a run directory (`folder` itself) whose last sample is at `ended_at` (default: now)."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.time() if ended_at is None else ended_at
    database = RunDatabase(str(folder / "run.sqlite"))
    database.about(
        RunFacts(
            run_id="20260102-030405-abcdef",
            name="web corpus, English",
            began_at=end - seconds,
            stages=list(STAGES),
            budget_bytes=BUDGET,
            workers=n_workers,
            input_bytes=INPUT,
            n_files=120,
        )
    )
    for second in range(seconds + 1):
        add_moment(database, end - seconds + second, second, seconds, n_workers, n_gpus, finished, rising)
    add_cells(database, 1.0 if finished else 0.62)
    add_units(database, end - seconds, seconds, n_units, n_workers)
    for i, (kind, text) in enumerate(
        [
            ("start", "4 workers, 386 MB each"),
            ("split", "part of crawl-0042.jsonl.zst took 512 MB where 400 MB were granted: cut in two and tried again"),
            ("recycle", "worker 3 holds 61 MB more than it began with: replaced"),
            ("quarantine", "crawl-0077.jsonl.zst at 1,203,332: not valid JSON"),
        ]
    ):
        database.put("events", at=end - seconds + 20 * (i + 1), kind=kind, data=json.dumps({"text": text}))
    database.put(
        "alerts",
        at=end - 90,
        rule="memory",
        level="warning",
        text="84 % of the budget for 30 s (1.68 GB of 2 GB)",
        data="{}",
    )
    database.put("alerts", at=end - 60, rule="memory", level="resolved", text="61 % of the budget", data="{}")
    database.put(
        "alerts",
        at=end - 20,
        rule="throughput",
        level="warning",
        text="language: 41,000 documents/s, half of what it was",
        data="{}",
    )
    settings = [
        {"name": "memory", "value": BUDGET, "chosen_by": "user", "why": "--memory 2GB"},
        {
            "name": "workers",
            "value": n_workers,
            "chosen_by": "machine",
            "why": "4 cores; each worker gets 386 MB beyond the 21 MB it starts with",
        },
        {
            "name": "blocksize",
            "value": 33_554_432,
            "chosen_by": "default",
            "why": "upper bound of a partition's decoded bytes",
        },
        {
            "name": "partition model 0",
            "value": [1.2e7, 4.1, 0.2],
            "chosen_by": "machine profile",
            "why": "fitted by earlier runs of this pipeline here",
        },
    ]
    (folder / "settings.json").write_text(json.dumps({"settings": settings}))
    if finished:
        ended = manifest(seconds)
        (folder / "manifest.json").write_text(json.dumps(ended))
        database.drops(Ledger.from_dict(ended["ledger"]))
        database.histograms(ended["histograms"])
        (folder / "prediction.json").write_text(
            json.dumps(
                {
                    "version": 1,
                    "basis": "machine profile: 3 earlier runs of this pipeline on this machine",
                    "confidence": 0.9,
                    "peak_bytes": {
                        "low": 1_300_000_000,
                        "expected": 1_650_000_000,
                        "high": 1_900_000_000,
                        "measured": 1_584_000_000,
                        "inside": True,
                    },
                    "seconds": {"low": 90.0, "expected": 140.0, "high": 260.5, "measured": seconds, "inside": False},
                    "cpu_s": {"expected": 10.0, "measured": 11.0},
                }
            )
        )
    database.close()
    return folder


def add_moment(
    database: RunDatabase,
    at: float,
    second: int,
    seconds: int,
    n_workers: int,
    n_gpus: int,
    finished: bool = False,
    rising: bool = False,
) -> None:
    share = second / max(seconds, 1) * (1.0 if finished else 0.62)
    n_documents = int(9_000_000 * share)
    stages, left = [], n_documents - n_documents // 900
    for stage, rate in zip(STAGES, (0.0, 0.12, 0.16, 0.09, 0.06, 0.0, 0.0), strict=True):
        stages.append((stage, left, left - int(left * rate)))
        left = stages[-1][2]
    trend = 900_000 * second if rising else 0
    workers = {
        w: int(180e6 + 90e6 * math.sin(second / 7 + w * 1.7) + 30e6 * math.sin(second * 1.3 + w)) + trend // n_workers
        for w in range(1, n_workers + 1)
    }
    server, supervisor = 92_000_000, 41_000_000
    used = sum(workers.values()) + server + supervisor
    level = 1 if used > 0.7 * BUDGET else 0
    state: dict[str, Any] = {
        "used_bytes": used,
        "budget_bytes": BUDGET,
        "documents": n_documents,
        "written": stages[-1][2],
        "dropped": sum(n_in - n_out for _, n_in, n_out in stages),
        "quarantined": n_documents // 900,
        "read_bytes": int(INPUT * share),
        "left_bytes": int(INPUT * (1 - share)),
        "level": level,
        "queue_bytes": int(60e6 + 50e6 * math.sin(second / 9)),
        "scratch_bytes": int(140e6 + 60e6 * math.sin(second / 9 + 1)),
        "disk_free_bytes": 812_000_000_000,
        "machine_used_bytes": 9_100_000_000,
        "machine_total_bytes": 33_000_000_000,
        "cgroup_used_bytes": 0,
        "cgroup_limit_bytes": 0,
        "psi_some": 0.4,
        "psi_full": 0.1,
        "cpu_s": second * 3.7,
        "n_processes": n_workers + 2,
        "server_bytes": server,
        "supervisor_bytes": supervisor,
        "duplicates": 0,
        "peak_bytes": int(used * 1.04),
    }
    database.sample(state, workers, at)
    for pid, role, worker, n_bytes in [
        (4000, "supervisor", 0, supervisor),
        (4001, "server", 0, server),
        *((4001 + w, "worker", w, n) for w, n in workers.items()),
    ]:
        database.put(
            "processes",
            at=at,
            pid=pid,
            role=role,
            worker=worker,
            segment=0,
            anon_bytes=int(n_bytes * 0.9),
            pss_bytes=n_bytes,
            peak_bytes=int(n_bytes * 1.2),
            cpu_s=second * 0.9,
        )
    for position, (stage, n_in, n_out) in enumerate(stages):
        database.put(
            "stages",
            at=at,
            stage=stage,
            position=position,
            n_in=n_in,
            n_out=n_out,
            n_dropped=n_in - n_out,
            in_bytes=n_in * 5300,
            seconds=second * (0.3, 0.8, 1.1, 0.9, 0.3, 0.2, 0.4)[position],
            cpu_s=second * 0.5,
            peak_bytes=int(60e6 + 25e6 * position),
        )
    if not finished:
        rules = [(stage, f"{stage} rule", n_in - n_out, 9000) for stage, n_in, n_out in stages if n_in > n_out]
        database.rule_counts(rules)
        database.dropped(at, [(s, rule, "crawl-0042.jsonl", 5300 * second, f"doc-{second}") for s, rule, *_ in rules])
    for gpu in range(n_gpus):
        busy = 0.86 + 0.12 * math.sin(second / 5 + gpu)
        database.put(
            "gpus",
            at=at,
            gpu=gpu,
            name="H100 80GB",
            used_bytes=int(52e9 + 9e9 * math.sin(second / 11 + gpu)),
            total_bytes=85_000_000_000,
            busy=busy,
            temperature_c=61.0,
            ours_bytes=int(48e9 + 9e9 * math.sin(second / 11 + gpu)),
            processes=json.dumps({"4002": 10}),
        )


def add_cells(database: RunDatabase, share: float, n: int = N_CELLS) -> None:
    size = INPUT // n
    rows = []
    for cell in range(n):
        state = [0, 0, 0]
        done = cell / n
        if done < share - 0.012 and not (0.3 < done < 0.31 and share < 1):
            state[2] = size
        elif done < share:
            state = (
                [size // 3, size // 3, size // 3]
                if cell % 3 == 0
                else [size // 2, 0, size // 2]
                if cell % 3 == 1
                else [0, size, 0]
            )
        else:
            state[0] = size
        rows.append(
            (
                cell,
                cell * size,
                (cell + 1) * size,
                *state,
                400_000 if cell % 97 == 5 and done < share else 0,
                cell % 61 == 3 and done < share,
            )
        )
    database.replace("cells", rows)


def add_units(database: RunDatabase, began: float, seconds: float, n: int, n_workers: int) -> None:
    for i in range(n):
        database.put(
            "units",
            at=began + seconds * i / max(n, 1),
            worker=i % n_workers + 1,
            unit=i,
            n_records=5000,
            decoded_bytes=31_000_000,
            largest_record=90_000,
            peak_bytes=220_000_000,
            floor_bytes=60_000_000,
            seconds=0.9,
            cpu_s=0.88,
        )


def manifest(seconds: float) -> dict[str, Any]:
    ledger = Ledger()
    ledger.records.add(9_000_000, 1)
    ledger.quarantined.add(10_000, 0)
    left = 8_990_000
    rules = {
        "language": {"not English": 1_050_000, "too uncertain": 120_000},
        "gopher_quality": {
            "words per document": 610_000,
            "symbols to words": 220_000,
            "no stop words": 330_000,
            "bullet lines": 41_000,
        },
        "gopher_repetition": {"duplicate lines": 400_000, "top 2-gram": 190_000, "duplicate 10-grams": 60_000},
        "fineweb_quality": {"short lines": 260_000, "lines without punctuation": 130_000},
    }
    for name in STAGES[1:-1]:
        book = StageBook(name)
        book.into.add(left, 1)
        for reason, n in rules.get(name, {}).items():
            book.drop(reason, n, 0, n * 4100, [(0, 1203 + n, None), (0, 88_000 + n, f"urn:doc:{n}")])
            left -= n
        book.out.add(left, 1)
        ledger.stages.append(book)
    ledger.written.add(left, 1)
    ledger.read_bytes, ledger.written_bytes = INPUT, 31_000_000_000
    ledger.n_blank_lines = 12
    lengths = [
        [2.0**i * (4 + q) / 4, 2.0**i * (5 + q) / 4, int(9e6 * math.exp(-((i + q / 4 - 11.5) ** 2) / 6))]
        for i in range(4, 21)
        for q in range(4)
    ]
    kept = [[a, b, int(n * 0.68 * min(1, max(0, (math.log2(a) - 6) / 4)))] for a, b, n in lengths]
    scores = [[i / 64, (i + 1) / 64, int(4e5 * math.exp(-((i / 64 - 0.87) ** 2) / 0.01) + 9e3)] for i in range(4, 64)]
    return {
        "run_id": "20260102-030405-abcdef",
        "steps": [1.0],
        "status": "finished",
        "share": 1.0,
        "exit_code": 0,
        "message": "",
        "ledger": ledger.to_dict(),
        "content_hash": "0" * 32,
        "seconds": seconds,
        "budget_bytes": BUDGET,
        "peak_bytes": 1_584_000_000,
        "counters": {"committed": 1600, "splits": 7, "kills": 0, "recycled": 3},
        "n_files": 120,
        "histograms": [
            {"stage": "", "name": "bytes", "kind": "length_in", "bins": [[8.0, 10.0, 900], *lengths]},
            {"stage": "", "name": "bytes", "kind": "length_out", "bins": kept},
            {
                "stage": "language",
                "name": "language_score",
                "kind": "score",
                "bins": [[0.0, 2.0**-24, 40_000], *scores, [None, None, 12]],
            },
        ],
    }
