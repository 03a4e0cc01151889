"""From figures to rows with verdicts, and to docs/explanation/benchmarks-gpu.md. Pure but for `read` and `write`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpu_parts.jobs import BUSY, CARD_TFLOPS, JOBS

Row = tuple[str, str, bool | None]  # what, measured, whether it reached what it has to (None: nothing is asked of it)


_ABOUT = {
    "turns": ["The quality classifier from JSONL to JSONL.", ""],
    "oom": [
        "DistilBERT with padding over the lengths of the corpus; the process may take what half of a first batch "
        "needs.",
        "",
    ],
    "semantic": [
        "Made clusters with planted copies (10 %), Parquet to Parquet with removal; recall of brute force "
        "over the made clusters.",
        "",
    ],
    "semantic-cpu": ["The same, smaller.", ""],
    "semantic-wide": [
        "Vectors in Parquet with planted copies (10 %); duplicates are listed. From the first read of the input to the "
        "last commit; CUDA starts meanwhile. The input is in the page cache: from a disk, the disk's rate is the "
        "limit.",
        "",
    ],
    "hashing": ["Texts of the corpus in memory as Arrow has them; keys of the GPU compared with those of the CPU.", ""],
}


def verdict(reached: bool | None) -> str:
    return "" if reached is None else "reached" if reached else "MISSED"


def read(folder: Path) -> dict[str, dict[str, Any]]:
    return {p.stem: json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))}


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the rows of one part; a step that failed is a row of its own."""
    failed: list[Row] = [
        (f"{name}: failed", str(step["error"]), False)
        for name, step in figures.items()
        if isinstance(step, dict) and "error" in step
    ]
    if figures["part"] in JOBS:
        return failed + _of_job(figures)
    made = {
        "turns": _of_turns,
        "oom": _of_oom,
        "semantic": _of_semantic,
        "semantic-cpu": _of_semantic,
        "semantic-wide": _of_wide,
        "hashing": _of_hashing,
    }
    return failed if failed else made[figures["part"]](figures)


def _asked(figures: dict[str, Any]) -> bool:
    """Whether goals count: not where the script is only tried, nor without a card."""
    return not figures.get("tiny") and figures.get("device") == "cuda"


def _of_turns(figures: dict[str, Any]) -> list[Row]:
    found: list[Row] = []
    for step, what in (("one", "one worker on the card"), ("shared", "workers that take turns")):
        rate, busy = figures[step].get("documents_per_s"), figures[step].get("gpu_busy")
        told = "" if busy is None else f", busy {busy:.1%}"
        reached = busy >= BUSY if step == "shared" and busy is not None and _asked(figures) else None
        found.append((f"{what} {figures[step].get('workers_per_gpu')}", f"{_n(rate)} documents/s{told}", reached))
    return found


def _of_oom(figures: dict[str, Any]) -> list[Row]:
    run = figures["run"]
    best = max(run["fixed"].values(), default=0.0)
    share = run["documents_per_s"] / best if best else 0.0
    asked = _asked(figures)
    return [
        ("documents that failed (none)", str(run["failures"]), run["failures"] == 0),
        (
            "out-of-memory events of a length (at most 3)",
            f"{run['most_events_of_a_length']} ({run['events']} in all, {run['lengths']} lengths)",
            run["most_events_of_a_length"] <= 3,
        ),
        (
            "rate beside the best fixed size (at least 95%)",
            f"{run['documents_per_s']:,.0f} documents/s, {share:.1%} of {best:,.0f}",
            share >= 0.95 if asked else None,
        ),
    ]


def _of_wide(figures: dict[str, Any]) -> list[Row]:
    run, asked = figures["run"], _asked(figures)
    phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in (run["phases"] or {}).items())
    return [
        (
            f"{run['vectors']:,} vectors of {run['width']:,} on the {run['backend']}, {run['cores']} cores "
            "(at least 200,000 a second)",
            f"{run['read_to_commit_s']:,.1f} s, {run['vectors_per_s']:,} a second",
            run["vectors_per_s"] >= 200_000 if asked else None,
        ),
        (
            "the whole call, with the start of its processes before and the removal of scratch after",
            f"{run['seconds']:,.1f} s, {run['start_s']:,.1f} s of it before the first read",
            None,
        ),
        ("in the solver", phases or "-", None),
        ("disk, written and synced", f"{run['disk_gb_per_s']} GB/s", None),
        (
            f"peak of the host's memory (at most {run['memory']})",
            f"{run['peak_gb']} GB",
            run["peak_gb"] <= parse_gb(run["memory"]),
        ),
        (
            "duplicates of planted copies (at least 99%)",
            f"{run['found']:,} of {run['planted']:,}, {run['clusters']:,} clusters",
            run["found"] >= 0.99 * run["planted"] if asked else None,
        ),
        ("documents listed that are no copy and have none (none)", str(run["wrong"]), run["wrong"] == 0),
    ]


def _of_semantic(figures: dict[str, Any]) -> list[Row]:
    run = figures["run"]
    budget = parse_gb(run["memory"])
    return [
        (
            f"{run['vectors']:,} vectors of 384 on the {run['backend']}, {run['cores']} cores",
            f"{run['seconds']:,.0f} s, {run['duplicates']:,} duplicates, {run['clusters']:,} clusters",
            None,
        ),
        (f"peak of the host's memory (at most {run['memory']})", f"{run['peak_gb']} GB", run["peak_gb"] <= budget),
        (
            "recall of planted copies (at least 99%)",
            f"{run['recall']:.2%}",
            run["recall"] >= 0.99 if not figures.get("tiny") else None,
        ),
        (
            "documents that went though nothing like them stays (none)",
            str(run["wrongly_gone"]),
            run["wrongly_gone"] == 0,
        ),
    ]


def parse_gb(size: str) -> float:
    return float(size.removesuffix("GB"))


def _of_hashing(figures: dict[str, Any]) -> list[Row]:
    run = figures["run"]
    found: list[Row] = []
    for name in ("exact", "sketch"):
        found.append((f"{name}: a core", f"{run[f'{name}_cpu_gb_per_s_per_core']} GB/s", None))
        if f"{name}_gpu_gb_per_s" in run:
            inside = run.get(f"{name}_gpu_on_device_gb_per_s")
            more = f" ({inside} where texts are on the device already)" if inside else ""
            found.append((f"{name}: the GPU, copies included", f"{run[f'{name}_gpu_gb_per_s']} GB/s{more}", None))
            found.append((f"{name}: the same keys", str(run[f"{name}_same"]), bool(run[f"{name}_same"])))
    return found + [(f"auto, {name}", told, None) for name, told in run["auto"].items()]


def _of_job(figures: dict[str, Any]) -> list[Row]:
    job, whole, alone = JOBS[figures["part"]], figures.get("end_to_end", {}), figures.get("model_only", {})
    asked = not figures.get("tiny") and figures.get("device") == "cuda"
    found: list[Row] = []
    if (rate := whole.get("documents_per_s")) is not None:
        found.append(
            (
                f"end to end, documents/s (at least {job.reach:,.0f})",
                f"{rate:,.0f}",
                rate >= job.reach if asked else None,
            )
        )
        if flop := alone.get("flop_per_document"):
            tflops = rate * flop / 1e12
            found.append(
                (
                    "end to end, TFLOP/s",
                    f"{tflops:,.0f} ({tflops / CARD_TFLOPS:.0%} of the card's {CARD_TFLOPS:.0f})",
                    None,
                )
            )
    if (busy := whole.get("gpu_busy")) is not None:
        found.append((f"GPU busy after warm-up (at least {BUSY:.0%})", f"{busy:.1%}", busy >= BUSY if asked else None))
    if (plain := alone.get("plain_documents_per_s")) is not None:
        ours = alone["stage_documents_per_s"]
        found.append(
            (f"plain transformers, model only (known: {job.plain_known:,.0f})", f"{plain:,.0f} documents/s", None)
        )
        found.append(
            ("the product's model stage alone", f"{ours:,.0f} documents/s, {ours / plain:.2f} times plain", None)
        )
        found.append(("answers differ from transformers by at most", str(alone.get("differs")), None))
    return found


def write(at: Path, measured: dict[str, dict[str, Any]]) -> None:
    """Return the page, from the figures of all parts that exist."""
    lines = ["# Models and deduplication on a GPU", "", "Written by `make bench-gpu` (`benchmarks/gpu.py --page`)."]
    some = next((f["model_only"] for f in measured.values() if "card" in f.get("model_only", {})), {})
    if some:
        lines[-1] += f" Card: {some['card']}, torch {some['torch']}, {some['cores']} cores."
    jobs = [measured[name] for name in JOBS if name in measured]
    if jobs:
        lines += ["", "## Models, from JSONL to JSONL", "", *_about_jobs(jobs)]
    titles = {
        "turns": "Workers that share the card",
        "oom": "A batch that is twice too large",
        "semantic": "Semantic deduplication on the GPU",
        "semantic-cpu": "Semantic deduplication on two cores",
        "semantic-wide": "Semantic deduplication of wide vectors",
        "hashing": "Keys of exact and fuzzy deduplication",
    }
    for part, title in titles.items():
        if part in measured:
            lines += ["", f"## {title}", "", *_ABOUT.get(part, ()), "| what | measured | |", "|---|---|---|"]
            lines += [f"| {what} | {found} | {verdict(reached)} |" for what, found, reached in rows(measured[part])]
    at.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _about_jobs(jobs: list[dict[str, Any]]) -> list[str]:
    lines = [
        "Reading, tokenising, the model, writing and committing through the product; documents/s from the end of the "
        "first unit of the GPU's worker to the",
        "end of its last one. Plain: `transformers` in bf16, batches sorted by length, tokens given, model only. "
        "Random weights; TFLOP/s without position terms.",
        "",
        "| job | characters, tokens each | plain, model only | model stage alone | end to end, documents/s | to reach "
        "| | GPU busy | TFLOP/s | of the card |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for figures in jobs:
        job, whole, alone = JOBS[figures["part"]], figures.get("end_to_end", {}), figures.get("model_only", {})
        rate, flop = whole.get("documents_per_s"), alone.get("flop_per_document")
        tflops = rate * flop / 1e12 if rate and flop else None
        cells = [
            job.title,
            f"{_n(alone.get('characters'))}, {_n(alone.get('tokens'))}",
            _n(alone.get("plain_documents_per_s")),
            _n(alone.get("stage_documents_per_s")),
            _n(rate),
            _n(job.reach),
            verdict(None if rate is None else rate >= job.reach),
            "-" if whole.get("gpu_busy") is None else f"{whole['gpu_busy']:.1%}",
            _n(tflops),
            "-" if tflops is None else f"{tflops / CARD_TFLOPS:.0%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    notes = []
    for figures in jobs:
        whole, alone, built = (figures.get(k, {}) for k in ("end_to_end", "model_only", "build"))
        for name, step in figures.items():
            if isinstance(step, dict) and "error" in step:
                notes.append(f"- {figures['part']}: {name} failed: {step['error']}")
        if "seconds" in whole:
            differs = alone.get("differs")
            told = (
                "" if differs is None else f"answers before the softmax differ from transformers by {differs} at most, "
            )
            notes.append(
                f"- {figures['part']}: {_n(built.get('documents'))} documents in {whole['seconds']:.0f} s from the "
                "start to the last commit, first output after "
                f"{_n(whole.get('first_output_s'))} s, host peak {whole['host_peak_gb']} GB of {whole['budget']}, "
                f"{told}"
                f"a core tokenises {_n(alone.get('tokenizer_documents_per_s_per_core'))} documents/s."
            )
        if (read := alone.get("tokens_read", alone.get("tokens"))) != alone.get("tokens"):
            notes.append(
                f"- {figures['part']}: of the {_n(alone['tokens'])} tokens of a document {_n(read)} go through the "
                "network; the others are the same for all documents, and read once."
            )
    return [*lines, "", *notes]


def _n(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
