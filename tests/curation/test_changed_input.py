"""Input that changes between or during the passes of a workflow: refused, or without effect on the output.

Never a silent loss.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation, DuplicateLines, ExactDuplicates, FuzzyDuplicates
from tamis.dedup.join_segments.workflow import DocumentJoinWorkflow
from tamis.dedup.pass_runner import PassRunner
from tamis.errors import Incomplete, RunConflict, TamisError
from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from tamis.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow
from tamis.stages.text.modifiers import Modify
from tests.curation.small_corpus import MEMORY
from tests.support.made_documents import text

N_DOCUMENTS = 120


def write_corpus(folder: Path) -> Path:
    """Two files of lines of equal length, a third of them duplicates, all with a line that many documents share."""
    folder.mkdir()
    rng, docs = random.Random(5), []
    for i in range(N_DOCUMENTS):
        body = docs[rng.randrange(len(docs))][1] if docs and i % 3 == 0 else text(i, 120)[:700].ljust(700, "x")
        docs.append((f"{i:04d}", body))
    for k in range(2):
        lines = [
            json.dumps({"id": i, "text": body + "\nAll rights reserved, whatever they may be."})
            for i, body in docs[k::2]
        ]
        assert len(set(map(len, lines))) == 1
        (folder / f"{k}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


# -- what happens to a file -----------------------------------------------------------------------------------------
def _shuffled(path: Path) -> bytes:
    lines = path.read_bytes().splitlines(keepends=True)
    return b"".join(lines[len(lines) // 2 :] + lines[: len(lines) // 2])


def _replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)


def replace_shuffled(path: Path) -> None:
    _replace(path, _shuffled(path))


def replace_shuffled_same_time(path: Path) -> None:
    before = path.stat()
    _replace(path, _shuffled(path))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rewrite_in_place_same_time(path: Path) -> None:
    """Rewrite the middle of the file only, which reading its beginning and end does not notice."""
    before, content = path.stat(), bytearray(path.read_bytes())
    lines = content.splitlines(keepends=True)
    half = len(lines) // 2
    lines[half], lines[half - 1] = lines[half - 1], lines[half]
    with open(path, "r+b") as file:
        file.write(b"".join(lines))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def append_a_duplicate(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(path.read_bytes().splitlines(keepends=True)[0])


def truncate(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    _replace(path, b"".join(lines[:-3]))


def vanish(path: Path) -> None:
    path.unlink()


CHANGES = [
    replace_shuffled,
    replace_shuffled_same_time,
    rewrite_in_place_same_time,
    append_a_duplicate,
    truncate,
    vanish,
]


class Meddler:
    """Applies a change at the `window`-th of the moments that a run passes through.

    These are before and after every pass and decision, and whenever a batch is modified inside of a pass.
    """

    def __init__(self, change: Callable[[Path], None] | None, path: Path, window: int) -> None:
        self.change, self.path, self.window, self.moments = change, path, window, 0

    def moment(self) -> None:
        if self.moments == self.window and self.change is not None:
            self.change(self.path)
        self.moments += 1

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("execute", "run_task"):
            real = getattr(PassRunner, name)

            def around(run: PassRunner, *args: Any, real: Any = real, **more: Any) -> Any:
                self.moment()
                result = real(run, *args, **more)
                self.moment()
                return result

            patch.setattr(PassRunner, name, around)


MEDDLERS: list[Meddler] = []


def modified(value: str) -> str:
    """Modify a text, which is one more window inside of each pass that runs this."""
    if value.startswith(text(1, 120)[:20]) and MEDDLERS:
        MEDDLERS[-1].moment()
    return value.replace("kaban", "KABAN")


def curation(source: Path, output: Path) -> Any:
    steps = [ExactDuplicates(), Modify(modified, "text"), DuplicateLines()]
    return Curation(steps, str(source), str(output)).run(InProcessExecutor(), memory=MEMORY, progress=False)


def curation_of_fuzzy(source: Path, output: Path) -> Any:
    steps = [FuzzyDuplicates(), Modify(modified, "text"), ExactDuplicates()]
    return Curation(steps, str(source), str(output)).run(InProcessExecutor(), memory=MEMORY, progress=False)


def exact(source: Path, output: Path) -> Any:
    return ExactDeduplicationWorkflow(
        input_path=str(source), output_path=str(output), perform_removal=True, input_filetype="jsonl"
    ).run(InProcessExecutor(), memory=MEMORY, progress=False)


def fuzzy(source: Path, output: Path) -> Any:
    return FuzzyDeduplicationWorkflow(
        input_path=str(source),
        cache_path=str(output) + ".cache",
        output_path=str(output),
        perform_removal=True,
        input_filetype="jsonl",
    ).run(InProcessExecutor(), memory=MEMORY, progress=False)


def joined(source: Path, output: Path) -> Any:
    workflow = DocumentJoinWorkflow(str(source), str(output), document_id_field="id", segment_id_field="segment")
    return workflow.run(InProcessExecutor(), memory=MEMORY, progress=False)


def found_only(source: Path, output: Path) -> Any:
    workflow = ExactDeduplicationWorkflow(input_path=str(source), output_path=str(output), input_filetype="jsonl")
    return workflow.run(InProcessExecutor(), memory=MEMORY, progress=False)


JOBS = {"curation": curation, "curation of fuzzy": curation_of_fuzzy, "exact": exact, "fuzzy": fuzzy}


def output_of(folder: Path) -> Counter[str]:
    return Counter(line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines())


def run_with(job: str, change: Callable[[Path], None] | None, window: int, folder: Path) -> tuple[Any, int, Path, Path]:
    """Run a job whose input changes at a window; return result or error, number of windows, input and output."""
    folder.mkdir()
    source, output = write_corpus(folder / "in"), folder / "out"
    meddler = Meddler(change, source / "1.jsonl", window)
    MEDDLERS.append(meddler)
    try:
        with pytest.MonkeyPatch.context() as patch:
            meddler.install(patch)
            try:
                result = JOBS[job](source, output)
            except TamisError as exc:
                result = exc
    finally:
        MEDDLERS.pop()
    return result, meddler.moments, source, output


def check(job: str, change: Callable[[Path], None], window: int, folder: Path, whole: Counter[str]) -> bool:
    """Assert that the change was refused, or the output is that of the input before or after it.

    Return True if it was refused.
    """
    result, _, source, output = run_with(job, change, window, folder)
    where = f"{job}: {change.__name__} at window {window}: {result}"

    def is_of_input_now() -> bool:  # the change came before anything was read
        JOBS[job](source, folder / "again")
        return output_of(output) == output_of(folder / "again")

    if not isinstance(result, TamisError):
        assert output_of(output) == whole or (window == 0 and is_of_input_now()), where
        return False
    assert isinstance(result, (RunConflict, Incomplete)), where
    assert "1.jsonl" in str(result), where
    try:
        JOBS[job](source, output)
    except TamisError:
        return True
    assert is_of_input_now(), where
    return True


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Counter[str], int]]:
    """Return the undisturbed output of each job, and how many windows it has."""
    found = {}
    for job in JOBS:
        result, n, _, output = run_with(job, None, -1, tmp_path_factory.mktemp("whole") / job)
        assert not isinstance(result, TamisError), result
        found[job] = (output_of(output), n)
    return found


@pytest.mark.parametrize("change", [replace_shuffled, append_a_duplicate, replace_shuffled_same_time])
def test_input_that_changes_while_the_first_group_decides_is_refused(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    result, _, source, output = run_with("curation", change, 2, tmp_path / "run")
    assert isinstance(result, RunConflict), result
    assert "1.jsonl" in str(result)
    assert not list(output.glob("*.jsonl"))
    with pytest.raises(RunConflict, match=r"1\.jsonl"):
        curation(source, output)


@pytest.mark.parametrize("job", [curation, exact, found_only, joined])
def test_a_finished_output_is_not_taken_for_that_of_more_input(
    tmp_path: Path, job: Callable[[Path, Path], Any]
) -> None:
    source = write_corpus(tmp_path / "in")
    for path in source.glob("*.jsonl"):
        path.write_text(path.read_text().replace('"text"', '"segment": 1, "text"'))
    output = tmp_path / "out"
    job(source, output)
    assert job(source, output).status == "already"
    (source / "2.jsonl").write_text('{"id": "new", "segment": 1, "text": "Some words."}\n')
    with pytest.raises(RunConflict, match=r"result of other input: .*2\.jsonl is new.*--fresh"):
        job(source, output)


@pytest.mark.parametrize("job", JOBS)
def test_content_that_changes_under_the_same_size_and_time_is_noticed(
    tmp_path: Path, job: str, whole: dict[str, tuple[Counter[str], int]]
) -> None:
    refused = [
        check(job, rewrite_in_place_same_time, window, tmp_path / str(window), whole[job][0]) for window in (1, 2, 3)
    ]
    assert all(refused)


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_every_change_at_every_window(tmp_path: Path, job: str, whole: dict[str, tuple[Counter[str], int]]) -> None:
    expected, n_windows = whole[job]
    assert n_windows >= 6
    for change in CHANGES:
        refused = [
            window
            for window in range(n_windows)
            if check(job, change, window, tmp_path / f"{change.__name__}-{window}", expected)
        ]
        # Only a change before the first read or behind the last one is harmless.
        assert set(range(2, n_windows // 2 + 1)) <= set(refused), (change.__name__, refused)
