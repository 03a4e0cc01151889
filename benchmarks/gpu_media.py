"""Measure images and videos on a GPU: CLIP and TransNetV2 alone, and whole runs through Tamis.

    python benchmarks/gpu_media.py --out DIR [--only PART[,PART...]] [--wheels FOLDER] [--small]
    (parts: clip, transnet, clip-model, transnet-model, decode, quality)
    python benchmarks/gpu_media.py --page DIR/gpu_media.json

Images and videos are made here; weights are random, which is as fast as trained ones. Each part is a process of its own
with a time limit: one that fails says so, and the others go on; what one printed before its end is kept. Figures are
printed as JSON, one line a part, and kept in DIR/gpu_media.json; `--page` writes them into benchmarks-images.md
and benchmarks-video.md. `--wheels`: a folder of wheels that are unpacked and used where the machine has no
simplejpeg, Pillow or av (benchmarks/carry_wheels.sh fills one). Without a GPU everything runs on the CPU, which
`--small` makes bearable.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))
FILE = "gpu_media.json"
PARTS = ("clip", "transnet", "clip-model", "transnet-model", "decode", "quality")
_LIMIT_S = 420.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="bench-data/gpu-media", help="Folder for the figures.")
    parser.add_argument("--only", help="Parts, with commas between them.")
    parser.add_argument("--wheels", help="Folder of wheels that are unpacked first.")
    parser.add_argument("--small", action="store_true", help="Little data and small networks: does it run?")
    parser.add_argument("--place", help="Where data lie while it runs (default: a temporary folder).")
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--video-seconds", type=int, default=60)
    parser.add_argument("--videos", type=int, default=16)
    parser.add_argument("--limit", type=float, default=_LIMIT_S, help="Seconds for one part.")
    parser.add_argument("--total", type=float, default=3600.0, help="Seconds for all parts: what is left bounds each.")
    parser.add_argument("--page", metavar="JSON", help="Only write the figures of this file into docs/.")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.page:
        from gpu_media_page import write_pages

        write_pages(json.loads(Path(given.page).read_text()))
        return 0
    if given.part:
        print(json.dumps(run_part(given.part, given)), flush=True)
        return 0
    wanted = tuple(given.only.split(",")) if given.only else PARTS
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))} are no parts; they are {', '.join(PARTS)}")
    return run_all(wanted, given)


def run_all(wanted: tuple[str, ...], given: argparse.Namespace) -> int:
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    kept = out / FILE
    figures: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    end = time.monotonic() + given.total
    with tempfile.TemporaryDirectory(prefix="tamis-gpu-media-", dir=given.place) as place:
        env = environment(Path(place), given.wheels)
        figures["machine"] = ask([sys.executable, str(Path(__file__).with_name("gpu_media_parts.py"))], env, 240.0)
        print(json.dumps({"machine": figures["machine"]}), flush=True)
        for part in wanted:
            rest = [a for a in sys.argv[1:] if not a.startswith("--only")]
            if given.only and given.only in rest:
                rest.remove(given.only)
            command = [sys.executable, __file__, *rest, "--part", part, "--place", place]
            began = time.perf_counter()
            figures[part] = ask(command, env, max(1.0, min(given.limit, end - time.monotonic())))
            figures[part]["part_s"] = round(time.perf_counter() - began, 1)
            print(json.dumps({part: figures[part]}), flush=True)
            kept.write_text(json.dumps(figures, indent=1))
    return 1 if any("error" in figures[part] for part in wanted) else 0


def ask(command: list[str], env: dict[str, str], limit_s: float) -> dict[str, Any]:
    """Return the last line that a process printed as JSON, or its error; end it after `limit_s`."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, start_new_session=True
    )
    try:
        text, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        return {**half_way(text), "error": f"not done after {limit_s:.0f} s", "said": text[-1500:]}
    lines = text.strip().splitlines()
    try:
        told = json.loads(lines[-1])
        return told if isinstance(told, dict) else {"error": "no figures", "said": text[-1500:]}
    except (ValueError, IndexError):
        return {"error": f"ended with {process.returncode}", "said": text[-3000:]}


def half_way(text: str) -> dict[str, Any]:
    """Return the figures that a part printed before it was ended."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                return dict(json.loads(line))
    return {}


def environment(place: Path, wheels: str | None) -> dict[str, str]:
    """For the parts: Tamis, this folder and what was unpacked can be imported."""
    found = [str(ROOT / "src"), str(Path(__file__).parent)]
    if wheels:
        unpacked = place / "wheels"
        for wheel in sorted(Path(wheels).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked)
        found.append(str(unpacked))
    path = os.pathsep.join([*found, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "TAMIS_PROFILES": "off",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def run_part(part: str, given: argparse.Namespace) -> dict[str, Any]:
    import gpu_media_parts as parts

    work = getattr(parts, part.replace("-", "_"))
    try:
        with tempfile.TemporaryDirectory(prefix=f"{part}-", dir=given.place) as folder:
            figures: dict[str, Any] = work(Path(folder), given)
            return figures
    except BaseException as exc:
        return {"error": f"{type(exc).__name__}: {exc}"[:600], "said": traceback.format_exc()[-3000:]}


if __name__ == "__main__":
    sys.exit(main())
