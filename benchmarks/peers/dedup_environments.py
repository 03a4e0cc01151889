"""Environments of the peers of the deduplication benchmarks, made once under the folder for benchmark data."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import data

# What the peers import and do not declare is named, too.
PACKAGES = {
    "dedup-tables": ["duckdb==2.0.0", "polars==2.1.0"],
    "dedup-datatrove": ["datatrove==0.10.1", "spacy", "tokenizers", "xxhash<4", "regex", "orjson"],
    "dedup-juicer": ["py-data-juicer==1.6.1", "aiohttp"],
}


def python(peer: str) -> str | None:
    """Return the interpreter of a peer's environment; print why and return None if pip cannot make it."""
    folder = data.DATA / "peers" / peer
    ready, found, wanted = folder / ".ready", str(folder / "bin" / "python"), " ".join(PACKAGES[peer])
    if ready.exists() and ready.read_text() == wanted:
        return found
    print(f"installing {wanted}", flush=True)
    venv.create(folder, clear=True, with_pip=True)
    command = [found, "-m", "pip", "install", "-q", *PACKAGES[peer]]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        reason = (made.stderr.strip() or "no reason given").splitlines()[-1]
        print(f"{peer}: left out, pip cannot install {wanted}: {reason}", flush=True)
        return None
    ready.write_text(wanted)
    return found
