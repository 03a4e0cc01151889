"""Dashboard and report in a real browser (Debian's chromium, headless): pages load, charts move, no errors."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tamis.engine.monitor.database import RunDatabase
from tamis.engine.schema import EventKind
from tamis.observe.report import write_report
from tests.support import slow_run
from tests.support.chromium import Browser
from tests.support.made_documents import text
from tests.support.made_run import add_cells, add_moment, make_run
from tests.support.run_dirs import run_dir_path

SRC = Path(__file__).parents[2] / "src"
# Of every row of sections, those that are shown fill the whole width.
NO_VOIDS = """
const main = document.getElementById('main').getBoundingClientRect(), rows = {};
for (const s of document.querySelectorAll('main > section:not([hidden])')) {
  const box = s.getBoundingClientRect();
  (rows[Math.round(box.top)] ??= []).push(box);
}
return Object.values(rows).filter((row) => Math.abs(Math.max(...row.map((b) => b.right)) - main.right) > 2
  || Math.abs(row.reduce((sum, b) => sum + b.width, 0) + (row.length - 1) * 14.4 - main.width) > 3
  || Math.max(...row.map((b) => b.height)) - Math.min(...row.map((b) => b.height)) > 1).length
"""
FITS = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
SECTIONS = (
    "memory",
    "map",
    "funnel",
    "rules",
    "dropped",
    "throughput",
    "speed",
    "queues",
    "gpus",
    "stages",
    "workers",
    "alerts",
    "events",
)

pytestmark = pytest.mark.timeout(300)


CURATION = """
name: mine
input: ???
output: ???
steps:
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj: {_target_: tamis.stages.text.filters.heuristic.WordCountFilter, min_words: 30}
    name: long_enough
  - _target_: user_stages.Slow
  - exact_duplicates: {}
  - fuzzy_duplicates: {}
"""


@contextlib.contextmanager
def served(run_dir: Path, token: str = "") -> Iterator[str]:
    command = [sys.executable, "-m", "tamis.observe.dashboard", str(run_dir), "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(SRC), "TAMIS_DASHBOARD_TOKEN": token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1]
        finally:
            process.kill()


@contextlib.contextmanager
def growing(folder: Path) -> Iterator[Callable[[], None]]:
    """Simulate a run in progress: one more sample every 0.3 s, until the end of the block."""
    end, seconds = threading.Event(), 60

    def write() -> None:
        database = RunDatabase(str(folder / "run.sqlite"))
        second = seconds
        while not end.wait(0.3):
            second += 1
            add_moment(database, time.time(), second, seconds * 2, 4, 1)
            add_cells(database, 0.5 + second / 1000)
            database.event(EventKind.RECOVERY, {"text": f"number {second}"})
            database.flush()
        database.close()

    make_run(folder, seconds=seconds, n_gpus=1)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield end.set
    finally:
        end.set()
        writer.join()


def test_every_chart_is_there_and_moves(browser: Browser, tmp_path: Path) -> None:
    browser.look(1400, 900)
    with growing(tmp_path), served(tmp_path) as url:
        browser.driver.get(url)
        browser.wait("return document.querySelector('#memory svg') !== null", "memory is drawn")
        for name in SECTIONS:
            assert browser.run(f"return document.getElementById('{name}').getBoundingClientRect().height > 20"), name
        beside = "const row = arguments[0].getBoundingClientRect(); return row.width >= document.getElementById('main')"
        beside = beside.replace("arguments[0]", "document.getElementById('map').closest('section')")
        assert browser.run(f"{beside}.getBoundingClientRect().width - 1"), "a small map would leave a void in its row"
        assert browser.run("return document.title") == "web corpus, English running · Tamis"
        before = {name: browser.run(f"return document.getElementById('{name}').innerHTML") for name in SECTIONS}
        for name in ("memory", "map", "funnel", "throughput", "queues", "gpus", "stages", "events"):
            changed = "return document.getElementById(arguments[0]).innerHTML !== arguments[1]"
            deadline = time.monotonic() + 60
            while not browser.driver.execute_script(changed, name, before[name]):
                assert time.monotonic() < deadline, f"{name} does not move"
                time.sleep(0.1)
        assert browser.complaints() == []


def test_a_curation_under_way_shows_its_passes_and_what_is_dropped(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for k in range(30):
        lines = [json.dumps({"id": f"{k}-{i}", "text": "short" if i % 3 else text(100 * k + i)}) for i in range(60)]
        (tmp_path / f"in/{k}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "recipe.yaml").write_text(CURATION)
    (tmp_path / "user_stages.py").write_text(slow_run.stages(0.3))
    command = [sys.executable, "-m", "tamis.cli.start", "curate", "in", "out", "--preset", "recipe.yaml", "-q"]
    more = ["--allow-module", "user_stages", "--memory", "600MB", "--workers", "1", "--blocksize", "20KB"]
    env = {**os.environ, "PYTHONPATH": f"{SRC}:{tmp_path}"}
    browser.look(1400, 900)
    with subprocess.Popen([*command, *more], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as run:
        while not (run_dir_path(tmp_path / "out") / "run.json").exists():
            assert run.poll() is None
            time.sleep(0.05)
        with served(run_dir_path(tmp_path / "out")) as url:
            browser.driver.get(url)
            browser.wait("return document.querySelector('#passes [aria-current=step]') !== null", "a pass is current")
            assert browser.run("return document.querySelectorAll('#passes li').length") >= 4
            browser.wait("return / of all passes, .* left/.test(progress.textContent)", "the time left of all passes")
            rows = "return [...document.querySelectorAll('#{} tbody tr')].map((row) => row.textContent)"
            dropped = browser.wait(rows.format("dropped"), "dropped documents are named")
            assert len(dropped) <= 12
            assert all("short" in row for row in dropped)  # the beginning of its text
            (rule,) = browser.run(rows.format("rules"))
            assert "word_count" in rule
            assert browser.run(NO_VOIDS) == 0
            while run.poll() is None:
                time.sleep(0.1)
            assert run.returncode == 0
            over = "return [...document.querySelectorAll('#passes li')].every((step) => step.className === 'finished')"
            browser.wait(over, "all passes are finished")
            assert browser.run(FITS)
            assert browser.run(NO_VOIDS) == 0
            assert browser.complaints() == []
            browser.driver.get("about:blank")
    browser.driver.get(f"file://{run_dir_path(tmp_path / 'out')}/report.html")
    assert browser.run("return document.querySelectorAll('ol.steps li.finished').length") >= 4


def test_values_under_the_pointer_stay_while_the_chart_moves(browser: Browser, tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.look(1400, 900)
    with growing(tmp_path), served(tmp_path) as url:
        browser.driver.get(url)
        browser.wait("return document.querySelector('#memory .hit') !== null", "memory is drawn")
        chart = browser.driver.find_element("css selector", "#memory .plot")
        ActionChains(browser.driver).move_to_element(chart).perform()
        first = browser.wait("return !tip.hidden && tip.textContent", "a tip appears")
        assert "of the budget" in first
        assert "worker 1" in first
        changed = "return !tip.hidden && tip.textContent !== arguments[0]"
        deadline = time.monotonic() + 60
        while not browser.driver.execute_script(changed, first):
            assert time.monotonic() < deadline, "the tip does not follow"
            time.sleep(0.1)
        assert browser.run("return document.querySelectorAll('svg title').length") == 0
        assert browser.complaints() == []


def test_ranges_and_freezing(browser: Browser, tmp_path: Path) -> None:
    browser.look(1400, 900)
    with growing(tmp_path), served(tmp_path) as url:
        browser.driver.get(url)
        browser.wait("return document.querySelector('#memory svg') !== null", "memory is drawn")
        assert "0" in browser.run("return [...document.querySelectorAll('#memory text')].map(t => t.textContent)")
        browser.run("document.querySelector('[data-range=\"60\"]').click()")
        late = "return ![...document.querySelectorAll('#memory text')].map(t => t.textContent).includes('0')"
        browser.wait(late, "only the last minute is shown")
        assert browser.run("return document.querySelectorAll('[aria-pressed=true]').length") == 1
        browser.run("document.getElementById('freeze').click()")
        time.sleep(1.0)  # an answer that was under way
        before = browser.run("return document.getElementById('memory').innerHTML")
        time.sleep(3.0)
        assert browser.run("return document.getElementById('memory').innerHTML") == before
        browser.run("document.getElementById('freeze').click()")
        moved = "return document.getElementById('memory').innerHTML !== arguments[0]"
        deadline = time.monotonic() + 60
        while not browser.driver.execute_script(moved, before):
            assert time.monotonic() < deadline, "it does not go on"
            time.sleep(0.1)
        assert browser.complaints() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1400])
def test_no_page_is_wider_than_the_screen(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    browser.look(width, 844, scheme)
    folder = make_run(tmp_path, seconds=60, n_gpus=2)
    with served(folder) as url:
        browser.driver.get(url)
        browser.wait("return document.querySelector('#settings table') !== null", "the page is complete")
        assert browser.run(FITS)
        if width >= 960:
            assert browser.run(NO_VOIDS) == 0
        _colours(browser, scheme)
        assert browser.complaints() == []
        browser.driver.get("about:blank")  # a page complains when its server goes
    browser.driver.get(f"file://{write_report(make_run(tmp_path / 'done', seconds=60, finished=True))}")
    assert browser.run(FITS)
    assert browser.run("return document.querySelectorAll('section').length") >= 5
    _colours(browser, scheme)
    assert browser.complaints() == []


def _colours(browser: Browser, scheme: str) -> None:
    """Dark text on light ground, or the other way round."""
    read = "return getComputedStyle(document.body).{0}.match(/[0-9]+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    ground, letters = (browser.run(read.format(which)) for which in ("backgroundColor", "color"))
    assert (ground > 600 and letters < 200) if scheme == "light" else (ground < 100 and letters > 600)


def test_a_token_goes_from_the_address_into_a_cookie(browser: Browser, tmp_path: Path) -> None:
    browser.look(1400, 900)
    make_run(tmp_path, seconds=20)
    with served(tmp_path, token="token-of-this-test") as url:
        bare = url.partition("?")[0]
        browser.driver.get(bare)
        assert "a token is needed" in browser.run("return document.body.textContent")
        browser.complaints()  # the browser itself notes the 401
        browser.driver.get(url)
        browser.wait("return document.querySelector('#memory svg') !== null", "memory is drawn")
        assert browser.run("return location.href") == bare
        assert browser.run("return document.cookie") == ""
        browser.driver.get(bare)
        browser.wait("return document.querySelector('#memory svg') !== null", "the cookie is enough")
        assert browser.complaints() == []


def test_the_server_ends_and_the_page_says_so(browser: Browser, tmp_path: Path) -> None:
    browser.look(1400, 900)
    make_run(tmp_path, seconds=20)
    with served(tmp_path) as url:
        browser.driver.get(url)
        browser.wait("return document.querySelector('#memory svg') !== null", "memory is drawn")
    browser.wait("return !lost.hidden && lost.textContent.startsWith('No answer from the dashboard')", "it says so")
    assert browser.run("return document.querySelector('#memory svg') !== null")
    browser.complaints()  # refused connections


def test_a_run_of_100_000_partitions_is_as_light_as_any(browser: Browser, tmp_path: Path) -> None:
    """Not timed, since the machine may be busy; what the browser must load and hold is bounded."""
    browser.look(1400, 900)
    folder = make_run(tmp_path, seconds=3600, n_workers=16, n_units=100_000)
    with served(folder) as url:
        browser.driver.get(url)
        browser.wait("return document.querySelector('#map svg') !== null", "the map is drawn")
        sizes = "return performance.getEntriesByType('resource').reduce((a, r) => a + r.decodedBodySize, 0)"
        assert browser.run(sizes) < 400_000
        assert browser.run("return document.querySelectorAll('*').length") < 6000
        assert browser.complaints() == []
