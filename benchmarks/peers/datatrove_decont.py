"""datatrove's n-gram decontamination over a folder of JSONL, on two cores: `python ... IN OUT ITEMS`.

Runs in datatrove's own environment. The index is written as its indexer writes it, from a file of items instead of
tasks of lighteval. Words are those of NLTK's tokenizer without its sentence splitter, whose data would be downloaded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nltk.tokenize
import numpy as np
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.decont import NGramsDecontFilter
from datatrove.pipeline.decont.n_grams import NGramsDecontConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.text import simplify_text, xxhash64

CONFIG = NGramsDecontConfig(n_grams=13)


def word_tokenize(text: str, language: str = "english") -> list[str]:
    return nltk.tokenize.NLTKWordTokenizer().tokenize(text)


nltk.tokenize.word_tokenize = word_tokenize


def write_index(items: Path, folder: Path) -> None:
    hashes: set[int] = set()
    for line in items.read_text().splitlines():
        words = word_tokenize(simplify_text(json.loads(line)["question"], CONFIG.norm_config))
        grams = (words[i : i + CONFIG.n_grams] for i in range(len(words) - CONFIG.n_grams + 1))
        hashes.update(xxhash64(" ".join(gram)) for gram in grams)
    folder.mkdir(parents=True)
    np.array(sorted(hashes), "<u8").tofile(folder / "items.index.hashes")


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
