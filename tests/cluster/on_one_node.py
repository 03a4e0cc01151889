"""Run filters, deduplication and curation on a real Ray cluster of one node, by every executor.

From Python and from the command line.

Run by test_ray.py in a process of its own. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.run_dirs import run_dir_path

START_S = 60.0
HERE = Path.cwd()


def write_documents() -> None:
    rng = random.Random(1)
    words = ["the", "be", "to", "sieve", "drum", "corpus", "text", "river", "and", "that"]
    texts = [" ".join(rng.choice(words) for _ in range(rng.randint(20, 90))) for _ in range(600)]
    for i in range(3):
        (HERE / "data").mkdir(exist_ok=True)
        with open(HERE / "data" / f"{i}.jsonl", "w") as file:
            for n in range(400):
                text = texts[(i * 200 + n) % 600]
                if n % 7 == 0:
                    text += " almost the same"
                file.write(json.dumps({"id": f"{i}-{n}", "text": text}) + "\n")


def content(output: str) -> str:
    return str(json.loads((run_dir_path(HERE / output) / "manifest.json").read_text())["content_hash"])


def filtered(executor: Any, output: str) -> str:
    from tamis import Pipeline
    from tamis.stages.text.filters import ScoreFilter
    from tamis.stages.text.filters.heuristic import WordCountFilter
    from tamis.stages.text.io import JsonlReader, JsonlWriter

    stages = [
        JsonlReader("data", blocksize="30kB"),
        ScoreFilter(WordCountFilter(min_words=50)),
        JsonlWriter(output),
    ]
    Pipeline("words", stages=stages).run(executor, progress=False, memory="1GB")
    return content(output)


def survivors(output: str) -> list[str]:
    lines = [line for path in sorted((HERE / output).glob("*.jsonl")) for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def deduplicated(executor: Any, output: str) -> list[str]:
    from tamis.dedup.exact.workflow import RemoveExactDuplicates

    RemoveExactDuplicates(input_path="data", output_path=output).run(executor, memory="1GB")
    return survivors(output)


def command(*arguments: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "tamis.cli.start", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        timeout=90,
        check=False,
    ).returncode


def start(client: Any) -> None:
    """Skip the test on a machine where no cluster starts within a minute."""
    watch = threading.Timer(START_S, give_up)
    watch.daemon = True
    watch.start()
    try:
        client.start()
    except Exception as exc:
        print(json.dumps({"skip": f"no Ray cluster can be started here: {str(exc)[:200]}"}))
        raise SystemExit(0) from exc
    finally:
        watch.cancel()


def give_up() -> None:
    print(json.dumps({"skip": f"no Ray cluster could be started in {START_S:.0f} s"}))
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    from tamis import LocalExecutor
    from tamis.backends.ray_data import RayDataExecutor
    from tamis.core.client import RayClient

    write_documents()
    found: dict[str, Any] = {"local": filtered(LocalExecutor(), "local")}
    found["local exact"] = deduplicated(None, "local-exact")
    client = RayClient(num_cpus=2, include_dashboard=False, object_store_memory=80_000_000)
    began_s = time.monotonic()
    start(client)
    found["started_s"] = round(time.monotonic() - began_s, 1)
    found["address"], found["in environment"] = client.address, os.environ.get("RAY_ADDRESS")
    try:
        page = (Path(__file__).parents[2] / "docs/guides/cluster.md").read_text(encoding="utf-8")
        (code,) = (c for c in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if "RayActorPoolExecutor" in c)
        names: dict[str, Any] = {}
        exec(compile(code, "docs/guides/cluster.md", "exec"), names)  # a RayActorPoolExecutor, as the page shows it
        last = names["executor"].last_result
        found["page"], found["peak_bytes"], found["budget_bytes"] = content("clean"), last.peak_bytes, last.budget_bytes
        exec(compile(code, "docs/guides/cluster.md", "exec"), names)
        found["status again"] = names["executor"].last_result.status
        with RayDataExecutor() as executor:
            found["ray_data"] = filtered(executor, "ray_data")
            assert executor._session is not None
            found["ray_data does"] = executor._session.progress_text()
        words = ["--executor", "ray", "--address", client.address, "--memory", "1GB", "--quiet"]
        found["exact by command"] = command("dedup", "exact", "data", "by-command", *words)
        found["ray exact"] = survivors("by-command")
    finally:
        client.stop()
    found["running"] = client.is_running
    found["environment after"] = os.environ.get("RAY_ADDRESS")
    found["ray imported"] = "ray" in sys.modules
    print(json.dumps(found))


if __name__ == "__main__":
    main()
