"""Compare Tamis with datatrove, document by document; write docs/explanation/datatrove.md.

datatrove runs in an environment of its own over the base files of the benchmarks, with its own tokenizer and with
Tamis' words; 100 MB take it about half an hour of CPU time. `--report` writes the document from the verdicts of the
last time. Exits with 1 where a difference is left that the words do not explain.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import data
from peers import environments
from peers.tamis_verdicts import SETS, comparable, judged

HERE = Path(__file__).resolve().parent
Pair = tuple[dict[str, Any], dict[str, Any]]  # what Tamis and what datatrove say of a document
ROWS = 500  # documents measured at a time
ABOUT = """# Tamis and datatrove

Written by `python benchmarks/peers/agreement.py`; `tests/stages/text/filters/test_datatrove.py` keeps it true.

Tamis' Gopher, C4 and FineWeb sets follow the filters of datatrove rule by
rule, in the same order and with the same limits, but split a text in another way. Both judged every document of a
corpus of technical documentation in twelve languages ({n_documents:,} documents, {n_mb:.0f} MB), by {version}:

{summary}

- *Same words*: datatrove with Tamis' words and sentences in place of its tokenizer. What is left is the rules, and
  there every document gets the same verdict for the same reason. Values are compared too, each as the limit of
  datatrove's own rule, which must keep the document there and drop it one floating-point number further.
- *Own words*: datatrove as it comes. All of these differences are differences of words and sentences.

## Words

Tamis splits at whitespace, `str.split()`; datatrove asks spaCy, which makes a word of each bracket, quote, full stop
and most other punctuation. So datatrove sees more and shorter words:

- fewer of them have a letter (`gopher_below_alpha_threshold`), which text with code and markup does not survive;
- the mean is lower (`gopher_above_avg_threshold` drops less), and there are enough of them (`gopher_short_doc`,
  `list_ratio`, `gopher_too_many_hashes` drop less);
- n-grams are shorter and repeat more (`duplicated_*_n_grams`), and `top_*_gram` counts the spaces it puts between the
  pieces;
- stop words are found also where they touch punctuation (`gopher_enough_stop_words`).

C4 counts sentences. Here a sentence ends at `.`, `?` or `!`, with closing quotes or brackets, before whitespace or
the end of the line; spaCy also ends one inside `System.Text`, and does not after `e.g.`

Documents that each rule drops first, datatrove with its own words:

{rules}

## What else differs

None of it changes a verdict on this corpus.

- A citation such as `[1]` or `[edit]` inside a line: datatrove takes it out before it counts sentences and looks for
  phrases. Here it is left out only at the end of a line, where it would hide the end mark; `gamma.[1] Delta` is one
  sentence.
- A text without words: the verdicts are the same, but where the limits are changed so that the first rules let it
  pass, datatrove's rules divide by the number of words; here their value is 0.
- A limit of 0 is a limit here, and None switches a rule off; datatrove's Gopher filters take both for off.
- `C4Quality` never changes a text; datatrove's filter keeps only the lines that pass. Here that is a modifier's work:
  [modifiers.md](../guides/modifiers.md).
- Other stop words, other end marks, other lengths of short lines and C4's switches per line are not parameters of the
  sets; write the rule with `StatisticFilter` ([filters.md](../reference/filters.md)). """


def batches(path: Path) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        for line in file:
            rows.append(json.loads(line))
            if len(rows) == ROWS:
                yield rows
                rows = []
    if rows:
        yield rows


def write_ours(documents: Path, target: Path) -> None:
    with open(target, "w") as out:
        for rows in batches(documents):
            texts = [row["text"] for row in rows]
            found = {name: judged(made(), texts) for name, made in SETS.items()}
            for i, row in enumerate(rows):
                verdict = {name: one[i][0] for name, one in found.items()}
                values = {name: comparable(name, texts[i], *one[i]) for name, one in found.items()}
                out.write(json.dumps({"id": row["id"], "verdict": verdict, "values": values}) + "\n")


def compare(peer: environments.Peer, documents: Path, report_only: bool) -> list[Pair]:
    """(Tamis', datatrove's) for each document of a file."""
    folder = data.DATA / "agreement"
    folder.mkdir(parents=True, exist_ok=True)
    ours, theirs = (folder / f"{documents.stem}.{side}.jsonl" for side in ("ours", "theirs"))
    write_ours(documents, ours)
    if not report_only:
        command = [peer.python, str(HERE / "datatrove_verdicts.py"), str(documents), str(ours), str(theirs)]
        subprocess.run(command, check=True, env=peer.env)
    with open(ours) as a, open(theirs) as b:
        return [(json.loads(x), json.loads(y)) for x, y in zip(a, b, strict=True)]


def unexplained(pairs: list[Pair], name: str) -> tuple[int, int, int]:
    """(verdicts that differ with the same words, values compared, values that differ)."""
    verdicts = sum(ours["verdict"][name] != theirs["split"][name] for ours, theirs in pairs)
    values = sum(len(ours["values"][name]) for ours, _ in pairs)
    differ = sum(rule in ours["values"][name] for ours, theirs in pairs for rule in theirs["differs"])
    return verdicts, values, differ


def summary(pairs: list[Pair]) -> Iterator[str]:
    yield (
        "| filter | same words: other verdicts | values compared | other values | own words: both keep | both drop | "
        "only Tamis keeps | only datatrove keeps |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for name in SETS:
        kept = Counter((not ours["verdict"][name], not theirs["own"][name]) for ours, theirs in pairs)
        own = [kept[key] for key in ((True, True), (False, False), (True, False), (False, True))]
        yield f"| `{name}` | " + " | ".join(f"{n:,}" for n in (*unexplained(pairs, name), *own)) + " |"


def rules(pairs: list[Pair]) -> Iterator[str]:
    yield "| filter | rule | Tamis | datatrove | both |"
    yield "|---|---|---|---|---|"
    for name, made in SETS.items():
        for rule in [one.name for one in made().filters()]:
            ours = {a["id"] for a, _ in pairs if a["verdict"][name] == rule}
            theirs = {a["id"] for a, b in pairs if b["own"][name] == rule}
            yield f"| `{name}` | {rule} | {len(ours):,} | {len(theirs):,} | {len(ours & theirs):,} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true", help="datatrove's verdicts of the last time")
    args = parser.parse_args()
    peer = environments.installed("datatrove")
    if peer is None:
        return 1
    with ThreadPoolExecutor(2) as pool:  # two processes of datatrove at a time
        parts = list(pool.map(lambda path: compare(peer, path, args.report), data.base()))
    pairs = [pair for part in parts for pair in part]
    text = ABOUT.format(
        n_documents=len(pairs),
        n_mb=sum(path.stat().st_size for path in data.base()) / 1e6,
        version=peer.version(),
        summary="\n".join(summary(pairs)),
        rules="\n".join(rules(pairs)),
    )
    (HERE.parents[1] / "docs/explanation/datatrove.md").write_text(text)
    print("\n".join(summary(pairs)))
    left = [n for name in SETS for n in unexplained(pairs, name)[::2]]
    return 1 if any(left) else 0


if __name__ == "__main__":
    sys.exit(main())
