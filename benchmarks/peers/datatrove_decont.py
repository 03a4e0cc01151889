"""datatrove's n-gram decontamination over a folder of JSONL, in one process: `python ... IN OUT ITEMS`.

Runs in datatrove's own environment. The index is written as its indexer writes it, from a file of items instead of
tasks of lighteval.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.decont import NGramsDecontFilter
from datatrove.pipeline.decont.n_grams import NGramsDecontConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import create_hash_func
from datatrove.utils.text import simplify_text
from datatrove.utils.typeshelper import Languages
from datatrove.utils.word_tokenizers import load_word_tokenizer

CONFIG = NGramsDecontConfig(n_grams=13)


def write_index(items: Path, folder: Path) -> None:
    hashed, tokenizer = create_hash_func(CONFIG.hash_config), load_word_tokenizer(Languages.english)
    hashes: set[int] = set()
    for line in items.read_text().splitlines():
        words = tokenizer.word_tokenize(simplify_text(json.loads(line)["question"], CONFIG.norm_config))
        grams = (words[i : i + CONFIG.n_grams] for i in range(len(words) - CONFIG.n_grams + 1))
        hashes.update(hashed(" ".join(gram)) for gram in grams)
    folder.mkdir(parents=True)
    np.array(sorted(hashes), CONFIG.hash_config.np_descr).tofile(folder / "items.index.hashes")


def main() -> int:
    source, target, items = sys.argv[1:]
    index = Path(f"{target}-index")
    if not index.exists():
        write_index(Path(items), index)
    steps = [
        JsonlReader(source),
        NGramsDecontFilter(str(index), CONFIG),
        JsonlWriter(target, compression=None),
    ]
    LocalPipelineExecutor(pipeline=steps, tasks=1, workers=1, logging_dir=f"{target}-logs").run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
