"""Downloads and documents of a source of one's own: by hand, and in a pipeline."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tamis import InProcessExecutor
from tamis.cli.jobs.summary import as_dict
from tamis.errors import DownloadError, TamisError, UsageError
from tamis.pipeline import Pipeline
from tamis.stages.text.download import (
    DocumentDownloader,
    DocumentDownloadExtractStage,
    DocumentDownloadStage,
    DocumentExtractor,
    DocumentIterateExtractStage,
    DocumentIterator,
    URLGenerationStage,
    URLGenerator,
)
from tamis.stages.text.download.base.download import HttpDownloader
from tamis.stages.text.download.fetch import USUAL
from tamis.stages.text.download.names import own_name_of_url
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask
from tests.support.loopback import Loopback
from tests.support.run_dirs import run_dir_path


class Urls(URLGenerator):
    def __init__(self, *urls: str) -> None:
        self.urls = urls

    def generate_urls(self) -> list[str]:
        return list(self.urls)


class Quick(HttpDownloader):
    policy = replace(USUAL, n_attempts=2, pause_s=0.0, timeout_s=10.0)


class Lines(DocumentIterator):
    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        with open(file_path, encoding="utf-8") as file:
            for line in file:
                if line.startswith("#"):
                    self._skip("remarks")
                    continue
                yield {"raw": line.rstrip("\n")}

    def output_columns(self) -> list[str]:
        return ["raw"]


class Upper(DocumentExtractor):
    def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
        return {"text": record["raw"].upper()} if record["raw"] else None

    def input_columns(self) -> list[str]:
        return ["raw"]

    def output_columns(self) -> list[str]:
        return ["text"]


def test_urls_become_tasks_once_each() -> None:
    stage = URLGenerationStage(Urls("http://h/a", "http://h/b", "http://h/a", "http://h/c"), limit=2)
    tasks = stage.process(EmptyTask("set"))
    assert [(t.dataset_name, t.data, t._metadata["source_url"]) for t in tasks] == [
        ("set", ["http://h/a"], "http://h/a"),
        ("set", ["http://h/b"], "http://h/b"),
    ]
    assert stage.name == "url_generation_urls"
    with pytest.raises(UsageError, match="limit: expected a whole number of at least 1"):
        URLGenerationStage(Urls(), limit=0)


def test_a_file_has_its_name_only_when_it_is_whole(web: Loopback, tmp_path: Path) -> None:
    web.files["/d/a.txt"] = b"x" * 1000
    web.faults["/d/a.txt"] = ["cut 10", "hang up", "hang up"]
    downloader = Quick(str(tmp_path / "in"))
    name = own_name_of_url(f"{web.url}/d/a.txt")
    assert re.fullmatch("[0-9a-f]{8}-d-a.txt", name)
    with pytest.raises(DownloadError):
        downloader.download(f"{web.url}/d/a.txt")
    assert not (tmp_path / "in" / name).exists()
    assert (tmp_path / "in" / f"{name}.part").stat().st_size == 10
    assert downloader.download(f"{web.url}/d/a.txt") == str(tmp_path / "in" / name)
    assert [p.name for p in (tmp_path / "in").iterdir()] == [name]
    n_requests = len(web.requests)
    assert downloader.download(f"{web.url}/d/a.txt") == str(tmp_path / "in" / name)
    assert len(web.requests) == n_requests


def test_two_urls_never_share_a_file(web: Loopback, tmp_path: Path) -> None:
    web.files |= {"/d/a": b"one", "/d-a": b"two"}
    downloader = Quick(str(tmp_path))
    urls = [f"{web.url}/d/a", f"{web.url}/d-a", f"{web.url.replace('127.0.0.1', 'localhost')}/d/a"]
    paths = [Path(str(downloader.download(url))) for url in urls]
    assert [path.read_bytes() for path in paths] == [b"one", b"two", b"one"]
    assert len(set(paths)) == 3


def test_what_cannot_be_had_is_named_and_counted(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = b"a"
    downloader = Quick(str(tmp_path))
    stage = DocumentDownloadStage(downloader)
    task = stage.process(FileGroupTask("set", [f"{web.url}/a", f"{web.url}/none"]))
    assert task.data == [str(tmp_path / own_name_of_url(f"{web.url}/a"))]
    assert task._metadata["failed_downloads"] == [f"{web.url}/none"]
    assert stage._consume_custom_metrics() == {"downloads": 1.0, "failed_downloads": 1.0}
    assert downloader.failures() == [{"url": f"{web.url}/none", "reason": "HTTP 404 Not Found"}]
    web.files["/none"] = b"late"
    name = own_name_of_url(f"{web.url}/none")
    assert stage.process(FileGroupTask("set", [f"{web.url}/none"])).data == [str(tmp_path / name)]
    assert downloader.failures() == []


def test_a_downloader_of_ones_own(tmp_path: Path) -> None:
    class Own(DocumentDownloader):
        def _get_output_filename(self, url: str) -> str:
            return url.rpartition(":")[2]

        def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
            if "bad" in url:
                return False, "not today"
            Path(path).write_text(url)
            return True, None

    own = Own(str(tmp_path))
    assert Path(str(own.download("own:a"))).read_text() == "own:a"
    assert own.download("own:bad") is None
    assert own.failures() == [{"url": "own:bad", "reason": "not today"}]
    for name in ("own:../x", "own:", "own:a/b", "own:.."):
        with pytest.raises(UsageError, match="expected a plain file name"):
            own.download(name)
    assert DocumentDownloadStage(own).xenna_stage_spec() == {}


def test_two_that_want_the_same_file_fetch_it_once(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = b"x" * 500_000
    web.faults["/a"] = ["cut 100000"]
    threads = [threading.Thread(target=Quick(str(tmp_path)).download, args=(f"{web.url}/a",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.range for r in web.requests] == [None, "bytes=100000-"]
    assert [p.name for p in tmp_path.iterdir()] == [own_name_of_url(f"{web.url}/a")]


def test_no_more_than_a_server_likes_download_at_a_time(web: Loopback, tmp_path: Path) -> None:
    at_once, most, guard = [0], [0], threading.Lock()

    class Shy(Quick):
        def num_workers_per_node(self) -> int | None:
            return 2

        def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
            with guard:
                at_once[0] += 1
                most[0] = max(most[0], at_once[0])
            try:
                return super()._download_to_path(url, path)
            finally:
                with guard:
                    at_once[0] -= 1

    web.files |= {f"/{i}": b"x" * 200_000 for i in range(6)}
    threads = [threading.Thread(target=Shy(str(tmp_path)).download, args=(f"{web.url}/{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= most[0] <= 2
    assert sorted(p.name[8:] for p in tmp_path.iterdir()) == ["-0", "-1", "-2", "-3", "-4", "-5"]
    assert DocumentDownloadStage(Shy(str(tmp_path))).xenna_stage_spec() == {"num_workers_per_node": 2}


def test_records_become_documents_with_the_name_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\n# a remark\n\ntwo\n")
    stage = DocumentIterateExtractStage(Lines(), Upper())
    batch = stage.process(FileGroupTask("set", [str(path)]))
    assert not isinstance(batch, list)
    assert batch.to_pyarrow().to_pydict() == {"text": ["ONE", "TWO"], "file_name": ["in.txt", "in.txt"]}
    counts = {"files": 1.0, "records": 3.0, "documents": 2.0, "skipped: remarks": 1.0}
    assert stage._consume_custom_metrics() == counts
    assert stage.outputs()[1] == ["text", "file_name"]
    assert stage.name == "iterate_extract_lines_upper"


def test_limits_columns_and_no_extractor(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    stage = DocumentIterateExtractStage(Lines(), record_limit=1, add_filename_column="source", max_calls_per_worker=3)
    batch = stage.process(FileGroupTask("set", [str(path), str(path)]))
    assert not isinstance(batch, list)
    assert batch.to_pyarrow().to_pydict() == {"raw": ["one", "one"], "source": ["in.txt", "in.txt"]}
    assert stage.ray_stage_spec() == {"max_calls_per_worker": 3}
    none = DocumentIterateExtractStage(Lines(), add_filename_column=False).process(FileGroupTask("set", []))
    assert not isinstance(none, list)
    assert (none.num_items, none.get_columns()) == (0, ["raw"])


def test_much_comes_in_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.stages.text.download.base.iterator._BATCH_BYTES", 1000)
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{i:0400d}\n" for i in range(10)))
    batches = DocumentIterateExtractStage(Lines(), Upper()).process(FileGroupTask("set", [str(path)]))
    assert isinstance(batches, list)
    assert [b.num_items for b in batches] == [3, 3, 3, 1]
    assert [t for b in batches for t in b.to_pyarrow()["text"].to_pylist()] == [f"{i:0400d}" for i in range(10)]


def test_an_iterator_or_extractor_that_raises_says_where(tmp_path: Path) -> None:
    class Bad(Upper):
        def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
            return {"text": {}[record["raw"]]}

    path = tmp_path / "in.txt"
    path.write_text("one\n")
    with pytest.raises(TamisError, match=r"in\.txt: extracting record 1 failed: KeyError: 'one'"):
        DocumentIterateExtractStage(Lines(), Bad()).process(FileGroupTask("set", [str(path)]))
    path.write_bytes(b"one\n\xff\n")
    with pytest.raises(TamisError, match=r"in\.txt: reading record 1 failed: UnicodeDecodeError"):
        DocumentIterateExtractStage(Lines()).process(FileGroupTask("set", [str(path)]))


def test_values_of_several_kinds_stay_what_they_are(tmp_path: Path) -> None:
    class Mixed(Upper):
        def extract(self, record: dict[str, Any]) -> dict[str, Any] | None:
            return {"text": 1 if record["raw"] == "one" else "two"}

    (tmp_path / "in.txt").write_text("one\ntwo\n")
    made = DocumentIterateExtractStage(Lines(), Mixed()).process(FileGroupTask("set", [str(tmp_path / "in.txt")]))
    assert isinstance(made, DocumentBatch)
    assert made.values("text") == [1, "two"]


def test_the_composite_runs_in_a_pipeline(web: Loopback, tmp_path: Path) -> None:
    web.files |= {"/a": b"one\ntwo\n", "/b": b"three\n"}
    web.faults["/b"] = ["503"]
    source = DocumentDownloadExtractStage(
        Urls(f"{web.url}/a", f"{web.url}/b", f"{web.url}/none"), Quick(str(tmp_path / "in")), Lines(), Upper()
    )
    assert [s.name for s in source.decompose()] == [
        "url_generation_urls",
        "download_quick",
        "iterate_extract_lines_upper",
    ]
    pipeline = Pipeline("own", stages=[source, JsonlWriter(str(tmp_path / "out"))])
    written = pipeline.run(executor=InProcessExecutor(), initial_tasks=[EmptyTask()])
    lines = [json.loads(line) for task in written for p in task.data for line in Path(p).read_text().splitlines()]
    a, b = own_name_of_url(f"{web.url}/a"), own_name_of_url(f"{web.url}/b")
    assert sorted((d["text"], d["file_name"]) for d in lines) == [("ONE", a), ("THREE", b), ("TWO", a)]
    assert [f["url"] for f in source.downloader.failures()] == [f"{web.url}/none"]


def test_records_and_documents_of_a_download_add_up(web: Loopback, tmp_path: Path) -> None:
    web.files["/a"] = b"one\n# a remark\n\ntwo\n"
    stages = [
        DocumentDownloadExtractStage(Urls(f"{web.url}/a"), Quick(str(tmp_path / "down")), Lines(), Upper()),
        JsonlWriter(str(tmp_path / "out")),
    ]
    pipeline = Pipeline("download", stages=stages)
    pipeline.run(executor=InProcessExecutor())
    about = as_dict(pipeline.last_result)
    assert (about["n_records"], about["n_written"], about["n_dropped"]) == (3, 2, 1)
    reading = about["stages"][-1]
    assert (reading["n_in"], reading["n_out"], sum(reading["dropped"].values())) == (3, 2, 1)
    report = json.loads((run_dir_path(tmp_path / "out") / "report.json").read_text())
    assert (report["n_records"], report["n_written"], report["n_dropped"]) == (3, 2, 1)


class Stumbling(Lines):
    """Fails on what it read from a file that contains `stumble`, as long as the file `flag` exists."""

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        for record in super().iterate(file_path):
            if record["raw"] == "stumble" and Path(self.flag).exists():
                raise OSError("a disk that fails")
            yield record


def test_each_file_is_a_unit_that_a_resumed_run_does_not_fetch_again(web: Loopback, tmp_path: Path) -> None:
    web.files |= {f"/{i}": b"stumble\n" if i == 3 else f"text {i}\n".encode() for i in range(5)}
    flag = tmp_path / "flag"
    flag.touch()
    urls = Urls(*(f"{web.url}/{i}" for i in range(5)))
    source = DocumentDownloadExtractStage(
        urls, Quick(str(tmp_path / "in")), Stumbling(str(flag)), Upper(), remove_files=True
    )
    pipeline = Pipeline("own", stages=[source, JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(TamisError, match="a disk that fails"):
        pipeline.run(executor=InProcessExecutor())
    n_before = len(web.requests)
    assert web.paths().count("/0") == 1
    flag.unlink()
    pipeline.run(executor=InProcessExecutor())
    assert not {"/0", "/1", "/2"} & set(web.paths()[n_before:])
    lines = [line for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["text"] for line in lines) == ["STUMBLE", "TEXT 0", "TEXT 1", "TEXT 2", "TEXT 4"]
    assert [path.name for path in (tmp_path / "in").iterdir()] == []


def test_files_take_no_more_disk_than_the_limit(web: Loopback, tmp_path: Path) -> None:
    web.files |= {f"/{i}": b"a line of text\n" * 2000 for i in range(8)}
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "left-by-a-killed-run").write_bytes(bytes(50_000))
    source = DocumentDownloadExtractStage(
        Urls(*(f"{web.url}/{i}" for i in range(8))),
        Quick(str(folder)),
        Lines(),
        download_limit=70_000,
        remove_files=True,
    )
    largest, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            sizes = []
            for path in folder.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    sizes.append(path.stat().st_size)
            largest[0] = max(largest[0], sum(sizes))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        pipeline = Pipeline("own", stages=[source, JsonlWriter(str(tmp_path / "out"))])
        pipeline.run(memory="800MB", workers=3, progress=False)
    finally:
        done.set()
        watcher.join()
    assert pipeline.last_result.ledger.written.n == 16_000
    assert 30_000 <= largest[0] <= 70_100  # and reservations, of some bytes
    assert [path.name for path in folder.iterdir() if path.name != ".room.lock"] == []
    assert len(list((tmp_path / "out").glob("*.jsonl"))) == 8


def test_a_limit_is_for_files_that_are_removed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give remove_files=True"):
        DocumentDownloadExtractStage(Urls("x"), Quick(str(tmp_path)), Lines(), download_limit="1MB")
    with pytest.raises(UsageError, match="lists nothing to do"):
        Pipeline("none", stages=[DocumentDownloadExtractStage(Urls(), Quick(str(tmp_path)), Lines())]).run(
            executor=InProcessExecutor()
        )
