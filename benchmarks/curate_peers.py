"""The same job done by others: nemo-curator's 28 heuristic filters, then datatrove's MinHash over what they kept.

A part of curate.py.

One command of Tamis with the same rules (28 filters, 5 words, 14 bands of 8) stands beside the two. All read the same
20 MB, and 400 kB of them for what starting takes; the rest, by MB, is what a GB would take. That last row is computed,
not measured.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
import dedup_environments
import environments

import data
from figures import note
from measuring import TAMIS, measure

HERE = Path(__file__).resolve().parent
N_BYTES, N_FILES, FEW_BYTES = 20_000_000, 4, 400_000
MEMORY = "512MB"
RECIPE = """
name: same-job
input: {source}
output: {target}
steps:
  - _target_: tamis.stages.text.filters.nemo_curator.HeuristicEnglish
  - fuzzy_duplicates: {{word_ngrams: 5, num_bands: 14, minhashes_per_band: 8}}
"""


@dataclass
class Took:
    """One job over some input, all of its commands together."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_pss_mb: float = 0.0
    kept: list[str] = field(default_factory=list)

    def add(self, command: list[str], env: dict[str, str] | None = None) -> None:
        result = measure(command, 1800, env)
        if result["rc"]:
            raise SystemExit(f"{command[:4]} ended with {result['rc']}: {result['said']}")
        self.wall_s, self.cpu_s = self.wall_s + result["wall_s"], self.cpu_s + result["cpu_s"]
        self.peak_pss_mb = max(self.peak_pss_mb, result["peak_pss_mb"] or 0.0)


def sample(n_bytes: int, name: str) -> Path:
    """Return the first documents of the base, in files of similar size."""
    folder = data.DATA / name
    if not folder.exists():
        temporary = data.DATA / f"{name}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for part in data.base()[:N_FILES]:
            with open(part, "rb") as source, open(temporary / part.name, "wb") as target:
                while target.tell() < n_bytes / N_FILES and (line := source.readline()):
                    target.write(line)
        temporary.rename(folder)
    return folder


def others(source: Path, out: Path, curator: environments.Peer, datatrove: str) -> Took:
    took, kept, unique = Took(), out / "kept", out / "unique"
    for folder in (kept, unique, out / "scratch"):
        shutil.rmtree(folder, ignore_errors=True)
    took.add(curator.command(source, kept), curator.env)
    for path in kept.glob(
        "*.jsonl"
    ):  # what is left of an input file without documents is a blank line, which others refuse
        if not path.read_bytes().strip():
            path.unlink()
    script = str(HERE / "peers" / "dedup_datatrove.py")
    took.add([datatrove, script, str(kept), str(unique), str(out / "scratch"), "2"])
    took.kept = ids_in(unique)
    return took


def ours(source: Path, out: Path, n_runs: int = 3) -> Took:
    """Return the fastest of a few runs, since each takes seconds and a busy machine would show."""
    found = []
    recipe, target = out / "same.yaml", out / "ours"
    recipe.write_text(RECIPE.format(source=source, target=target))
    for _ in range(n_runs):
        took = Took()
        shutil.rmtree(target, ignore_errors=True)
        took.add([TAMIS, "run", str(recipe), "--memory", MEMORY, "--json", "--quiet"])
        took.kept = ids_in(target)
        found.append(took)
    return min(found, key=lambda t: t.cpu_s)


def ids_in(folder: Path) -> list[str]:
    lines = (line for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines() if line.strip())
    return sorted(str(json.loads(line)["id"]) for line in lines)


def peers(quick: bool) -> None:
    curator, datatrove = environments.installed("nemo-curator"), dedup_environments.python("dedup-datatrove")
    if curator is None or datatrove is None:
        return
    out = data.DATA / "out" / "curate-peers"
    out.mkdir(parents=True, exist_ok=True)
    much, few = sample(N_BYTES // (2 if quick else 1), f"peers-{10 if quick else 20}"), sample(FEW_BYTES, "peers-few")
    n_mb, few_mb = (sum(p.stat().st_size for p in folder.iterdir()) / 1e6 for folder in (much, few))
    part = f"peers, {n_mb:.0f} MB"
    names = (
        f"{curator.version()} (28 filters, Ray Data), then "
        f"{dedup_environments.PACKAGES['dedup-datatrove'][0].replace('==', ' ')} (MinHash)"
    )
    told: dict[str, tuple[Took, Took]] = {
        names: (others(much, out, curator, datatrove), others(few, out, curator, datatrove)),
        f"`tamis run` of a curation with the same rules, {MEMORY}": (ours(much, out), ours(few, out)),
    }
    per_mb: dict[str, float] = {}
    for who, (all_, start) in told.items():
        per_mb[who] = max(0.001, (all_.cpu_s - start.cpu_s) / (n_mb - few_mb))
        figure = (
            f"{all_.wall_s:.1f} s wall, {all_.cpu_s:.1f} s CPU, peak {all_.peak_pss_mb:.0f} MB, {len(all_.kept):,} "
            "documents"
        )
        note(part, who, f"{figure}; of that to start {start.wall_s:.1f} s, {start.cpu_s:.1f} s CPU")
    (them, they_start), (us, we_start) = told.values()
    them_mb, us_mb = per_mb.values()
    same = len(set(them.kept) & set(us.kept))
    note(part, "documents that both keep", f"{same:,}")
    note(part, "Tamis, by CPU time, starting included", f"{them.cpu_s / us.cpu_s:.0f} x")
    note(
        part,
        "Tamis, by CPU time per MB, starting left out",
        f"{them_mb / us_mb:.0f} x ({them_mb:.2f} and {us_mb:.3f} s CPU a MB)",
    )
    far = f"{they_start.cpu_s + 1000 * them_mb:,.0f} and {we_start.cpu_s + 1000 * us_mb:,.0f} s CPU"
    note(part, "1 GB, extrapolated by CPU time per MB, not measured", far)
    shutil.rmtree(out, ignore_errors=True)


def about(rows: list[Any]) -> list[Any]:
    """Return the recorded rows of this part."""
    return [row for row in rows if row[0].startswith("peers")]
