"""Models and deduplication on a GPU: the figures of benchmarks-gpu.md.

    python benchmarks/gpu.py --corpus FOLDER --out DIR [--only PART[,PART...]]   measure into DIR/PART.json
    python benchmarks/gpu.py --page --out DIR                                    write benchmarks-gpu.md
    python benchmarks/gpu.py --device cpu --tiny --out DIR                       try the script: small models

FOLDER holds *.jsonl with a field `text`; documents are repeated, with marks, until there are enough. Models have random
weights, which are as fast as trained ones, and the real sizes. Every part runs in a process of its own, under a time
limit; one that fails says why, and the next goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
try:
    import cloudpickle  # noqa: F401
except ImportError:  # all stages here are importable: plain pickle is enough
    sys.modules["cloudpickle"] = pickle

from gpu_parts import corpus, page  # noqa: E402
from gpu_parts.jobs import JOBS  # noqa: E402

OTHERS = ("turns", "oom", "semantic", "semantic-cpu", "semantic-wide", "hashing")
PARTS = [*JOBS, *OTHERS]
STEPS = {"turns": ["build", "one", "shared"]}  # of parts that have several


def main() -> int:
    given = _arguments()
    out = Path(given.out)
    if given.page:
        page.write(ROOT / "docs/explanation/benchmarks-gpu.md", page.read(out))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    if given.step:
        return _step(given)
    chosen = [p for p in (given.only.split(",") if given.only else PARTS) if p]
    if unknown := sorted(set(chosen) - set(PARTS)):
        raise SystemExit(f"--only {unknown[0]}: expected some of {', '.join(PARTS)}")
    work = Path(given.work or tempfile.mkdtemp(prefix="bench-gpu-"))
    missed = 0
    try:
        for part in chosen:
            missed += _measure(part, given, work, out)
    finally:
        if given.work is None:
            shutil.rmtree(work, ignore_errors=True)
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="A folder with *.jsonl. Without it texts are made up.")
    parser.add_argument("--out", default="bench-data/gpu", help="Where figures go, one JSON file for each part.")
    parser.add_argument("--only", help=f"Parts, with commas between them: {', '.join(PARTS)}.")
    parser.add_argument("--work", help="Where models and documents are built (kept); default: a temporary folder.")
    parser.add_argument("--documents", type=int, help="Documents of each job, instead of its own number.")
    parser.add_argument("--workers-per-gpu", type=int, help="Instead of what the product chooses.")
    parser.add_argument("--limit-s", type=float, default=240.0, help="Seconds after which a step is ended.")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="Small models and 50 documents.")
    parser.add_argument("--page", action="store_true", help="Write benchmarks-gpu.md from what is in --out.")
    parser.add_argument("--step", help=argparse.SUPPRESS)  # PART:STEP, in a process of its own
    return parser.parse_args()


def _measure(part: str, given: argparse.Namespace, work: Path, out: Path) -> int:
    """One part, its steps in processes of their own; 1 where a figure was not reached, or none came."""
    began, figures = time.perf_counter(), {"part": part, "device": given.device, "tiny": given.tiny}
    steps = ["build", "end_to_end", "model_only"] if part in JOBS else STEPS.get(part, ["run"])
    for step in steps:
        print(f"-- {part}: {step} ({time.perf_counter() - began:.0f} s)", flush=True)
        found = _child(part, step, given, work)
        figures[step] = found
        (out / f"{part}.json").write_text(json.dumps(figures, indent=1))
    rows = page.rows(figures)
    for what, measured, reached in rows:
        print(f"{part:12s} {what:58s} {measured:60s} {page.verdict(reached)}", flush=True)
    return int(any(reached is False for *_, reached in rows) or any("error" in figures[s] for s in steps))


def _child(part: str, step: str, given: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Return the output of a step run in its own process group, or its error if it failed or timed out.

    Nothing that it started is left.
    """
    result = work / f"{part}.{step}.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, __file__, *sys.argv[1:], "--work", str(work), "--step", f"{part}:{step}"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(given.limit_s)
        error = f"ended with {code}" if code else ""
    except subprocess.TimeoutExpired:
        error = f"took longer than {given.limit_s:.0f} s"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    if result.exists():
        found: dict[str, Any] = json.loads(result.read_text())
        return found
    return {"error": error or "wrote nothing"}


def _step(given: argparse.Namespace) -> int:
    """Run a step of a part in this process."""
    part, _, step = given.step.partition(":")
    work = Path(given.work)
    try:
        found = _job_step(part, step, given, work) if part in JOBS else _other_step(part, step, given, work)
    except Exception as exc:
        traceback.print_exc()
        found = {"error": f"{type(exc).__name__}: {str(exc)[:500]}"}
    print(f"   {json.dumps(found)}", flush=True)
    (work / f"{part}.{step}.json").write_text(json.dumps(found))
    return 1 if "error" in found else 0


def _other_step(part: str, step: str, given: argparse.Namespace, work: Path) -> dict[str, Any]:
    if part == "turns":  # the quality classifier with one worker on the card, and as the product shares it
        given.workers_per_gpu = 1 if step == "one" else None
        return _job_step("quality", "build" if step == "build" else "end_to_end", given, work)
    if part in ("semantic", "semantic-cpu"):
        from gpu_parts import semantic

        n = given.documents or (2000 if given.tiny else 1_000_000 if part == "semantic" else 200_000)
        on_gpu = part == "semantic" and given.device == "cuda"
        return semantic.run(work, n, "gpu" if on_gpu else "cpu", "16GB" if on_gpu else "3GB", None if on_gpu else 2)
    if part == "semantic-wide":
        from gpu_parts import wide

        n = given.documents or (2000 if given.tiny else 4_000_000)
        return wide.run(work, n, "gpu" if given.device == "cuda" else "cpu", "4GB" if given.tiny else "64GB")
    texts = _texts(given)
    if part == "oom":
        from gpu_parts import oom

        return {**oom.run(texts, given.device, given.tiny), **(_card() if given.device == "cuda" else {})}
    from gpu_parts import hashing

    return hashing.run(texts, given.device, given.tiny)


def _texts(given: argparse.Namespace) -> list[str]:
    return corpus.texts_of(Path(given.corpus)) if given.corpus else corpus.made_up(60 if given.tiny else 5000)


def _job_step(part: str, step: str, given: argparse.Namespace, work: Path) -> dict[str, Any]:
    job, models = JOBS[part], work / "models"
    if given.tiny:
        job = job.tiny()
    if given.documents:
        job = replace(job, n_documents=given.documents)
    texts = _texts(given)
    if step == "build":
        from gpu_parts import model_folders

        began = time.perf_counter()
        model_folders.build(models, job.kind, texts, given.tiny, given.device)
        built = time.perf_counter() - began
        shutil.rmtree(work / "in", ignore_errors=True)
        n_chars = corpus.write(work / "in", texts, job.n_documents)
        return {
            "model_s": round(built, 1),
            "documents_s": round(time.perf_counter() - began - built, 1),
            "documents": job.n_documents,
            "characters": round(n_chars / job.n_documents),
        }
    if step == "end_to_end":
        from gpu_parts import end_to_end

        return end_to_end.run(job, models, work / "in", work / "out", given.workers_per_gpu)
    from gpu_parts import model_only

    card = _card() if given.device == "cuda" else {}
    return {**model_only.run(job, models, texts, given.device), **card}


def _card() -> dict[str, str]:
    import torch

    return {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cores": str(len(os.sched_getaffinity(0))),
    }


if __name__ == "__main__":
    sys.exit(main())
