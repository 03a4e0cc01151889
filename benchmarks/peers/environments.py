"""The peers: an environment for each, made once under the folder for benchmark data, and the commands that run them."""

from __future__ import annotations

import os
import secrets
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

import data

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "datatrove": ["datatrove==0.10.1", "regex", "spacy>=3.8,<4", "orjson", "xxhash<4"],
    "nemo-curator": ["nemo-curator[text-cpu]==1.4.0"],
}
_TOKEN = secrets.token_hex(
    32
)  # with which a cluster that a peer starts knows its own processes; without one its Ray refuses itself


@dataclass(frozen=True)
class Peer:
    """An installed peer. `env` finds its programs before others: one of the peers starts `ray` by name."""

    name: str
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def env(self) -> dict[str, str]:
        own = {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
        return {**os.environ, **own, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN}

    def version(self) -> str:
        code = f"from importlib.metadata import version; print(version({self.name!r}))"
        return f"{self.name} {self._says(code)}"

    def command(self, source: Path, target: Path, executor: str = "ray_data") -> list[str]:
        """Its filters over a folder of JSONL, to JSONL. `executor`: which of its own, where it has several."""
        if self.name == "datatrove":
            # Its logs go with its output: left from a run before, they would make it skip what it takes for done.
            return [self.python, str(HERE / "datatrove_gopher.py"), str(source), str(target), str(target / "logs")]
        package = self._says("from importlib.util import find_spec; print(find_spec('nemo_curator').origin)")
        recipes = Path(package).parent / "config" / "text"
        # Ray Data: the quicker of its two executors here. The other needs a core for each of 30 stages, or batch mode.
        chosen = [f"+backend={executor}", *(["+execution_mode=batch"] if executor == "xenna" else [])]
        recipe = [f"--config-path={recipes}", "--config-name=heuristic_filter_english_pipeline", *chosen]
        return [self.python, "-m", "nemo_curator.config.run", *recipe, f"input_path={source}", f"output_path={target}"]

    def _says(self, code: str) -> str:
        said = subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True)
        return said.stdout.strip()


def installed(name: str) -> Peer | None:
    """Return the peer; print why and return None if pip cannot install it."""
    peer = Peer(name, data.DATA / "peers" / name)
    ready, wanted = peer.folder / ".ready", " ".join(PACKAGES[name])
    if ready.exists() and ready.read_text() == wanted:
        return peer
    print(f"installing {wanted}", flush=True)
    try:
        venv.create(peer.folder, clear=True, with_pip=True)
        command = [peer.python, "-m", "pip", "install", "-q", *PACKAGES[name]]
        subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        reason = str(getattr(exc, "stderr", "") or exc).strip().splitlines()[-1]
        print(f"{name}: left out, {wanted} cannot be installed: {reason}", flush=True)
        return None
    ready.write_text(wanted)
    return peer
