"""Every other workflow on a real Ray cluster of one node, by command, against the same command on this machine.

Prints one line of JSON.
"""

from __future__ import annotations

import json
import random

from tests.cluster.on_one_node import HERE, command, start, survivors, write_documents

COMMANDS = {
    "fuzzy": ["dedup", "fuzzy", "data"],
    "lines": ["dedup", "lines", "data"],
    "semantic": ["dedup", "semantic", "embedded", "--eps", "0.05"],
    "curate": ["curate", "data", "--preset", "minimal"],
    "classify": ["classify", "model.bin", "data"],
    "remove": ["dedup", "remove", "data", "ids.jsonl", "--id-field", "id"],
}


def write_others() -> None:
    rng = random.Random(5)
    (HERE / "embedded").mkdir()
    with open(HERE / "embedded" / "a.jsonl", "w") as file:
        for n in range(300):
            vector = [rng.gauss(0, 1) for _ in range(16)]
            for copy in range(2):
                file.write(
                    json.dumps({"id": f"{n}-{copy}", "text": "x", "embeddings": [v + copy * 1e-4 for v in vector]})
                    + "\n"
                )
    with open(HERE / "ids.jsonl", "w") as file:
        file.writelines(json.dumps({"id": f"0-{n}"}) + "\n" for n in range(50))
    with open(HERE / "labelled.jsonl", "w") as file:
        for n in range(400):
            words = ["river", "drum"] if n % 2 else ["corpus", "sieve"]
            file.write(json.dumps({"text": " ".join(rng.choices(words, k=20)), "label": f"l{n % 2}"}) + "\n")
    assert command("train-classifier", "labelled.jsonl", "-o", "model.bin") == 0


def main() -> None:
    from tamis.core.client import RayClient

    write_documents()
    write_others()
    found: dict[str, object] = {}
    client = RayClient(num_cpus=2, include_dashboard=False, object_store_memory=80_000_000)
    start(client)
    try:
        for name, words in COMMANDS.items():
            for executor in ("local", "ray"):
                output = f"{name}-{executor}"
                more = ["--address", client.address] if executor == "ray" else []
                words_out = [*words[: _place(words)], output, *words[_place(words) :]]
                code = command(*words_out, "--memory", "1GB", "--quiet", "--executor", executor, *more)
                found[output] = {"code": code, "kept": survivors(output) if code == 0 else []}
    finally:
        client.stop()
    print(json.dumps(found))


def _place(words: list[str]) -> int:
    """Before the first option."""
    return next((i for i, word in enumerate(words) if word.startswith("--")), len(words))


if __name__ == "__main__":
    main()
