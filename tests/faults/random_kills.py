"""Kill jobs of all kinds at random instants: `make torture-kills-long KILLS=1000`.

    python -m tests.faults.random_kills --kills 1000 [--minutes 38] [--seed 1] [--kinds copy-gz,fuzzy] [--folder DIR]

Each kind of job runs undisturbed once. Then it runs again and again: at random instants SIGKILL hits the supervisor,
one of its processes, or all of them, and the same command is started anew, with other workers and another budget, until
it finishes. What it wrote is compared with what the undisturbed run wrote, and the scratch folder must be empty. Only
processes below the command that was started here are killed.

Prints a line for each output and a table at the end. Exit code 1 where an output differs, something is left in scratch,
or a command fails without having been killed. Outputs that differ are kept, and named.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.faults.fault_harness import compress, document, env
from tests.faults.test_curate_kills_everything import RECIPE as EVERYTHING
from tests.faults.test_dedup_kills import SETTINGS, write_corpus
from tests.support.run_dirs import run_dir_path

FILTER = """
name: killed
stages:
  - {{_target_: tamis.stages.text.io.reader.{reader}, file_paths: {source}, blocksize: 150KB}}
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {{_target_: tamis.stages.text.filters.heuristic.WordCountFilter, min_words: 17}}
  - {{_target_: tamis.stages.text.io.writer.{writer}, path: "???"}}
"""
LONGEST_S = 300.0  # of one start
N_DOCUMENTS = 12_000
MOST_KILLS = 6  # of one output


@dataclass(frozen=True)
class Kind:
    """A kind of job.

    `prepare` writes its input into a folder; `command` gives what to start for a folder and an output.
    """

    name: str
    prepare: Callable[[Path], None]
    command: Callable[[Path, Path], list[str]]
    needs: tuple[str, ...] = ()  # modules
    memory: str = ""  # instead of budgets that change with every start


@dataclass
class Row:
    """What became of one kind."""

    n_outputs: int = 0
    n_starts: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    n_different: int = 0
    n_leftovers: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def n_kills(self) -> int:
        return sum(self.killed.values())


# -- kinds of jobs ----------------------------------------------------------------------------------------------------
def _lines() -> bytes:
    return b"".join(document(i) + b"\n" for i in range(N_DOCUMENTS)) + b"{broken\n"


def _rows() -> pa.Table:
    return pa.Table.from_pylist([json.loads(document(i)) for i in range(N_DOCUMENTS)])


def _write_one(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir()
        path = folder / name
        if path.suffix == ".parquet":
            pq.write_table(_rows(), path, row_group_size=N_DOCUMENTS // 2)
        elif path.suffix == ".arrow":
            with pa.ipc.new_file(path, _rows().schema) as file:
                file.write_table(_rows(), max_chunksize=1000)
        else:
            codec = path.suffix.removeprefix(".")
            path.write_bytes(_lines() if codec == "jsonl" else compress(_lines(), codec))

    return write


def _filter(name: str) -> Kind:
    is_table = name.endswith((".parquet", ".arrow"))
    reader = "ParquetReader" if name.endswith(".parquet") else "DocumentReader"
    recipe = FILTER.format(reader=reader, writer="ParquetWriter" if is_table else "JsonlWriter", source="{source}")

    def command(folder: Path, output: Path) -> list[str]:
        path = folder.with_suffix(".yaml")
        path.write_text(recipe.replace("{source}", str(folder)))
        return ["run", str(path), "--set", f"stages.2.path={output}"]

    return Kind(f"filter {name.partition('.')[2]}", _write_one(name), command, ("zstandard",) if ".zst" in name else ())


def _write_embeddings(folder: Path) -> None:
    rng = random.Random(3)
    folder.mkdir()
    points = [[rng.gauss(0, 1) for _ in range(32)] for _ in range(2000)]
    with open(folder / "a.jsonl", "w") as file:
        for i in range(6000):
            vector = [x + rng.gauss(0, 0.01) for x in rng.choice(points)]
            file.write(json.dumps({"id": i, "text": f"t{i}", "embeddings": vector}) + "\n")


def _write_images(folder: Path) -> None:
    from tests.support.sample_images import jpeg, tar

    folder.mkdir()
    for k in range(4):
        tar(folder / f"{k}.tar", {f"{i:03d}.jpg": jpeg(100 * k + i, 300, 200) for i in range(60)})


def _write_videos(folder: Path) -> None:
    from tests.support.sample_videos import make_video

    folder.mkdir()
    for i in range(4):
        make_video(folder / f"{i}.mp4", 120, size=(320, 180))


def _write_texts_and_model(folder: Path) -> None:
    from tests.stages.text.models import small_models

    folder.mkdir()
    with open(folder / "a.jsonl", "w") as file:
        for i in range(4000):
            file.write(json.dumps({"id": i, "text": small_models.texts()[i % 40]}) + "\n")
    small_models.sequence_classifier(folder.with_suffix(".model"))


def _classify(folder: Path, output: Path) -> list[str]:
    return ["classify", str(folder.with_suffix(".model")), str(folder), str(output), "--blocksize", "50KB"]


def _curate(folder: Path, output: Path) -> list[str]:
    path = folder.with_suffix(".yaml")
    path.write_text(EVERYTHING.replace("IN/", f"{folder}/"))
    return ["run", str(path), "--set", f"output={output}", "--blocksize", "2MB"]


def _corpus(folder: Path) -> None:
    write_corpus(folder)


def _dedup(kind: str) -> Kind:
    def command(folder: Path, output: Path) -> list[str]:
        return ["dedup", kind, str(folder), str(output), "--blocksize", "1MB"]

    return Kind(kind, _corpus, command)


def _substrings(folder: Path, output: Path) -> list[str]:
    words = ["dedup", "substrings", str(folder), str(output), "--blocksize", "1MB", "--min-bytes", "100"]
    return [*words, "--max-source-loss", "100%"]


def _write_index(folder: Path) -> None:
    """Write a corpus, and beside it an index of one of its files."""
    _corpus(folder)
    earlier = folder.with_name("earlier")
    earlier.mkdir()
    path = min(folder.iterdir())
    shutil.move(path, earlier / path.name)
    more = ["--index", str(folder.with_name("index")), "--quiet"]
    command = [*_substrings(earlier, folder.with_name("earlier-out")), *more]
    subprocess.run([sys.executable, "-m", "tamis.cli.start", *command], env=env(), check=True, capture_output=True)


def _against_index(folder: Path, output: Path) -> list[str]:
    """Compare with an index, and write another one beside the output."""
    index = folder.with_name("index")
    return [*_substrings(folder, output), "--against", str(index), "--index", str(_index_beside(output))]


def _index_beside(output: Path) -> Path:
    return output.with_name(f"{output.name}-index")


def _semantic(folder: Path, output: Path) -> list[str]:
    return ["dedup", "semantic", str(folder), str(output), "--backend", "cpu", "--eps", "0.05", "--blocksize", "300KB"]


def _images(folder: Path, output: Path) -> list[str]:
    return ["images", str(folder), str(output)]


def _video(folder: Path, output: Path) -> list[str]:
    seconds = ["--clip-seconds", "1", "--min-clip-seconds", "0.5"]
    return ["video", str(folder), str(output), *seconds, "--transcode", "libx264"]


KINDS = (
    *map(_filter, ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.jsonl.bz2", "a.jsonl.xz", "a.parquet", "a.arrow")),
    *map(_dedup, ("exact", "fuzzy", "lines")),
    Kind("substrings", _corpus, _substrings),
    Kind("substrings index", _write_index, _against_index),
    Kind("semantic", _write_embeddings, _semantic),
    Kind("curation", _corpus, _curate),
    Kind("images", _write_images, _images, ("PIL",), "600MB"),
    Kind("video", _write_videos, _video, ("av",), "700MB"),
    Kind("classify", _write_texts_and_model, _classify, ("torch", "transformers"), "1500MB"),
)


# -- what a run left --------------------------------------------------------------------------------------------------
def contents(output: Path) -> Counter[str]:
    """Every document and file of an output, however they are spread over files. Cards tell of times."""
    found = Counter[str]()
    for path in sorted(p for p in output.rglob("*") if p.is_file()):
        where = path.relative_to(output)
        if path.is_relative_to(run_dir_path(output)) or path.name == "README.md":
            continue
        group = f"{where.parent}/{path.name.partition('-')[0]}"
        if path.suffix == ".parquet":
            for row in pq.read_table(path).to_pylist():
                row.pop("tar_path", None)
                found[f"{group} {json.dumps(row, default=repr, sort_keys=True)}"] += 1
        elif ".jsonl" in path.suffixes:
            found.update(f"{group} {line!r}" for line in _decoded(path).splitlines())
        elif path.suffix == ".tar":
            with tarfile.open(path) as tar:
                found.update(f"{group} {_digest(tar.extractfile(member).read())}" for member in tar if member.isfile())  # type: ignore[union-attr]
        else:
            found[f"{where} {_digest(path.read_bytes())}"] += 1
    for path in _index_beside(output).rglob("*.parquet"):
        found.update(f"index {json.dumps(row, sort_keys=True)}" for row in pq.read_table(path).to_pylist())
    return found


def _decoded(path: Path) -> bytes:
    from tamis.formats.compression.streams import StreamReader

    with StreamReader.open(path) as reader:
        return b"".join(iter(lambda: reader.read(1 << 20), b""))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def leftovers(scratch: Path, output: Path) -> list[str]:
    """Return what a finished run should have removed."""
    found = [str(p.relative_to(scratch)) for p in scratch.rglob("*")] if scratch.exists() else []
    staged = run_dir_path(output) / "staged"
    return found + [f"staged/{p.name}" for p in (staged.iterdir() if staged.exists() else ())]


# -- killing ----------------------------------------------------------------------------------------------------------
class Killer:
    """One kind of job in a folder of its own."""

    def __init__(self, kind: Kind, folder: Path, rng: random.Random) -> None:
        self.kind, self._rng = kind, rng
        self._input, self._folder = folder / "in", folder
        self.row = Row()
        folder.mkdir(parents=True)
        kind.prepare(self._input)
        began_s = time.monotonic()
        status, text = self._start(folder / "calm", n_kills=0)
        self._calm_s = time.monotonic() - began_s
        if status != 0:
            raise SystemExit(f"{kind.name}: the undisturbed run failed with {status}: {text[-2000:]}")
        self._expected = contents(folder / "calm")
        if not self._expected:
            raise SystemExit(f"{kind.name}: the undisturbed run wrote nothing")
        if left := leftovers(self._scratch(folder / "calm"), folder / "calm"):
            self.row.failed.append(f"the undisturbed run left {left[:3]}")
        self.row.n_starts = 0

    def one_output(self, most_kills: int) -> str:
        """Run until an output is complete; return a line that says how that went."""
        began_s, before = time.monotonic(), self.row.n_kills
        output = self._folder / f"out{self.row.n_outputs}"
        left = self._rng.randint(1, min(MOST_KILLS, most_kills))
        for _ in range(4 * MOST_KILLS):
            n_before = self.row.n_kills
            status, text = self._start(output, left)
            left -= self.row.n_kills - n_before
            if status == 0:
                break
            if self.row.n_kills == n_before or status not in (-signal.SIGKILL, 1):
                self.row.failed.append(f"exit status {status}: {text[-500:]}")
                break
        else:
            self.row.failed.append("not finished after many starts")
        self.row.n_outputs += 1
        self.row.seconds += time.monotonic() - began_s
        told = self._judge(output) if status == 0 else self.row.failed[-1]
        return f"{self.kind.name:16} {self.row.n_kills - before} kills, {time.monotonic() - began_s:5.1f} s: {told}"

    def _judge(self, output: Path) -> str:
        left = leftovers(self._scratch(output), output)
        self.row.n_leftovers += len(left)
        same = contents(output) == self._expected
        self.row.n_different += not same
        if same and not left:
            shutil.rmtree(output)
            shutil.rmtree(self._scratch(output), ignore_errors=True)
            shutil.rmtree(_index_beside(output), ignore_errors=True)
            return "the same"
        return f"{'the same' if same else 'DIFFERENT'}, left in scratch: {left[:5]}; kept in {output}"

    @staticmethod
    def _scratch(output: Path) -> Path:
        return output.with_name(f"{output.name}-scratch")

    def _start(self, output: Path, n_kills: int) -> tuple[int, str]:
        """Start the command once, and kill up to so many of its processes; return its exit status and what it said."""
        memory, workers = self._rng.choice(SETTINGS)
        scratch = self._scratch(output)
        scratch.mkdir(exist_ok=True)
        options = ["--memory", self.kind.memory or memory, "--workers", workers, "--scratch", str(scratch), "--quiet"]
        command = [sys.executable, "-m", "tamis.cli.start", *self.kind.command(self._input, output), *options]
        self.row.n_starts += 1
        with tempfile.TemporaryFile("w+") as log:
            run = subprocess.Popen(
                command,
                env=env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                self._disturb(run, n_kills)
                status = run.wait(LONGEST_S)
            except subprocess.TimeoutExpired:
                status = 124
            finally:
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGKILL)
                    run.wait()
            log.seek(0)
            return status, log.read()

    def _disturb(self, run: subprocess.Popen[bytes], n_kills: int) -> None:
        for _ in range(n_kills):
            # Most of it is starting: later instants are as likely as early ones.
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(self._rng.uniform(0.02, max(0.5, self._calm_s)))
            if run.poll() is not None:
                return
            which = self._rng.choices(["supervisor", "process", "all"], [4, 5, 1])[0]
            if self._kill(run, which):
                self.row.killed[which] += 1

    def _kill(self, run: subprocess.Popen[bytes], which: str) -> bool:
        try:
            below = [p.pid for p in psutil.Process(run.pid).children(recursive=True)]
        except psutil.Error:
            return False
        if which == "process" and not below:
            return False
        victims = {"supervisor": [run.pid], "process": [self._rng.choice(below or [0])], "all": [run.pid, *below]}
        n_hit = 0
        for pid in victims[which]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                n_hit += 1
        return n_hit > 0


def table(rows: dict[str, Row]) -> list[str]:
    """Return the result by kind of job, and in all."""
    head = (
        f"{'kind':16} {'outputs':>7} {'starts':>6} {'kills':>5} {'differing':>9} {'leftovers':>9} {'failed':>6} "
        f"{'seconds':>7}"
    )
    lines = [head, "-" * len(head)]
    total = Row()
    for name, row in rows.items():
        lines.append(_line(name, row))
        total.n_outputs += row.n_outputs
        total.n_starts += row.n_starts
        total.killed += row.killed
        total.n_different += row.n_different
        total.n_leftovers += row.n_leftovers
        total.failed += row.failed
        total.seconds += row.seconds
    minutes = max(total.seconds, 1e-9) / 60
    victims = ", ".join(f"{n} {who}" for who, n in sorted(total.killed.items()))
    return [*lines, _line("all", total), f"victims: {victims}; {total.n_kills / minutes:.1f} kills a minute"]


def _line(name: str, row: Row) -> str:
    numbers = (
        f"{row.n_outputs:7} {row.n_starts:6} {row.n_kills:5} {row.n_different:9} {row.n_leftovers:9} "
        f"{len(row.failed):6}"
    )
    return f"{name:16} {numbers} {row.seconds:7.0f}"


def run_kills(names: Sequence[str], kills: int, minutes: float, seed: int, folder: Path) -> dict[str, Row]:
    """All kinds in turn, until so many processes were killed or the time is up."""
    rng, deadline_s = random.Random(seed), time.monotonic() + 60 * minutes
    killers: dict[str, Killer] = {}
    chosen = [kind for kind in KINDS if not names or kind.name in names]
    while chosen:
        for kind in list(chosen):
            missing = [module for module in kind.needs if find_spec(module) is None]
            if missing:
                print(f"{kind.name:16} left out: {', '.join(missing)} is not installed", flush=True)
                chosen.remove(kind)
                continue
            n_kills = sum(killer.row.n_kills for killer in killers.values())
            if n_kills >= kills or time.monotonic() > deadline_s:
                return {name: killer.row for name, killer in killers.items()}
            if kind.name not in killers:
                place = folder / kind.name.replace(" ", "-")
                killers[kind.name] = Killer(kind, place, random.Random(rng.random()))
            print(f"{n_kills:5} {killers[kind.name].one_output(kills - n_kills)}", flush=True)
    return {name: killer.row for name, killer in killers.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=38.0, help="begin no further output after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help=f"of {', '.join(kind.name for kind in KINDS)}; default: all")
    parser.add_argument("--folder", type=Path, help="default: a temporary one; it is kept where something is wrong")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="tamis-kills-"))
    rows = run_kills([n for n in asked.kinds.split(",") if n], asked.kills, asked.minutes, asked.seed, folder)
    print("\n" + "\n".join(table(rows)))
    failed = [f"{name}: {reason}" for name, row in rows.items() for reason in row.failed]
    for reason in failed:
        print(reason)
    wrong = bool(failed) or any(row.n_different or row.n_leftovers for row in rows.values())
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
