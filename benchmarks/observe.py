"""Figures of observing: `make bench-observe`, or `python benchmarks/observe.py [--quick] [--only PART]`.

What monitoring, the dashboard and the documents shown in reports cost a run, how well the samples agree with a
measurement from outside, how long the page of a run of 100,000 partitions takes in a browser. Writes
benchmarks-observe.md when all parts ran.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import data
from figures import ROWS, note, run_parts, table, write_page
from measuring import TAMIS, measure
from tamis.memory import meter
from tamis.stores.run_locations import run_dir_of

OUT = Path(os.environ.get("TAMIS_BENCH_OUT", data.DATA / "out")) / "observe"
PORT = 18787
COARSE_S = 1.0  # between looks at the memory of all processes, where wall times are compared
MAX_SHOWN, MAX_SHOWN_BYTES = 0.01, 3e6
MAX_LOSS, MAX_BYTES, MAX_DIFFERENCE, MAX_S = 0.02, 90e6, 0.03, 2.0


class Page(threading.Thread):
    """A page that is open on the run: it asks again whenever it was answered, as a browser does.

    And looks at the dashboard's process.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.n_answers, self.peak_bytes, self.cpu_s = 0, 0, 0.0
        self._end = threading.Event()

    def run(self) -> None:
        seen, pid = "", 0
        while not self._end.wait(0.01 if seen else 0.3):
            with contextlib.suppress(OSError, ValueError):
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{PORT}/fragments?range=all&wait=1&seen={seen}", timeout=30
                ) as answer:
                    seen = json.load(answer)["version"]
                self.n_answers += 1
                pid = pid or _dashboard()
                self.peak_bytes = max(self.peak_bytes, meter.pss(pid) or 0)
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self.cpu_s = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._end.set()
        self.join()


def _dashboard() -> int:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
                if b"tamis.observe.dashboard" in words and str(OUT).encode() in b" ".join(words):
                    return int(name)
    return 0


def job(source: Path, *more: str, pss_interval_s: float = 0.1) -> tuple[dict[str, Any], Path]:
    shutil.rmtree(OUT, ignore_errors=True)
    os.sync()  # what the run before left to be written is not the burden of this one
    recipe = ["run", "gopher", "--set", f"input={source}", "--set", f"output={OUT}"]
    return measure([TAMIS, *recipe, "--memory", "512MB", "--json", *more], pss_interval_s=pss_interval_s), Path(
        run_dir_of(OUT), "run.sqlite"
    )


def cost(quick: bool) -> None:
    """Measure the same run without a dashboard and with one that a page is open on, in turn.

    Single runs differ by a tenth and more, for minutes at a time. So each is compared with its neighbour, and the
    middle one of many such ratios counts.
    """
    source = data.many(10)
    plain, watched, monitor, own, pss, answers = [], [], [], [], 0, 0
    n_rounds = 3 if quick else 16
    for i in range(n_rounds):
        for dashboard in (False, True) if i % 2 else (True, False):
            if not dashboard:
                r, database = job(source, pss_interval_s=COARSE_S)
                plain.append(r)
                monitor.append(_about(database, "monitor_cpu_s") / r["cpu_s"])
                continue
            page = Page()
            page.start()
            try:
                r, database = job(source, "--dashboard", "--dashboard-port", str(PORT), pss_interval_s=COARSE_S)
            finally:
                page.stop()
            watched.append(r)
            own.append(page.cpu_s / r["cpu_s"])
            pss, answers = max(pss, page.peak_bytes), answers + page.n_answers
    if not answers or not pss:
        raise SystemExit("the dashboard was not seen")
    losses, more_cpu = (
        sorted(w[name] / p[name] - 1 for p, w in zip(plain, watched, strict=True)) for name in ("wall_s", "cpu_s")
    )
    loss = statistics.median(losses)
    best = min(r["wall_s"] for r in watched) / min(r["wall_s"] for r in plain) - 1
    note("cost", "CPU time of monitoring, of the run's", f"{max(monitor):.2%}", max(monitor) < 0.01)
    spread = ", ".join(f"{r['wall_s']:.1f}" for r in plain)
    quarter = len(losses) // 4
    told = (
        f"{loss:+.1%} (half of them {losses[quarter]:+.1%} to {losses[-1 - quarter]:+.1%}); best against best "
        f"{best:+.1%}; "
    )
    told += f"CPU time {statistics.median(more_cpu):+.1%}"
    note(
        "cost",
        f"wall time with dashboard and page against without, middle of {n_rounds} pairs",
        told,
        loss < MAX_LOSS,
    )
    note("cost", "... without, one by one (s)", spread)
    note("cost", "CPU time of the dashboard's own process, of the run's", f"{max(own):.2%}", max(own) < MAX_LOSS)
    note("cost", "memory of the dashboard", f"{pss / 1e6:.0f} MB ({answers} answers)", pss < MAX_BYTES)
    inside = max(r["peak_pss_mb"] for r in watched)
    note("cost", "peak of everything, dashboard included, budget 512 MB", f"{inside:.0f} MB", inside <= 512)


def samples(quick: bool) -> None:
    """Peaks as the samples have them against a measurement from outside that is fine enough not to miss short ones."""
    found = []
    for _ in range(4):
        r, database = job(data.many(10), pss_interval_s=0.02)
        found.append(_peak(database) / 1e6 / r["peak_pss_mb"] - 1)
    shown = ", ".join(f"{p:+.1%}" for p in found)
    note(
        "samples",
        "peak in the samples against PSS from outside (every 0.02 s)",
        shown,
        max(map(abs, found)) <= MAX_DIFFERENCE,
    )


def shown(quick: bool) -> None:
    """CPU time of choosing, describing and showing documents: pairs of runs with samples and without, in turn."""
    source, n_pairs = data.many(2 if quick else 10), 3 if quick else 11
    ratios, differences_s, n_bytes = [], [], 0
    for i in range(n_pairs):
        cpu_s = {}
        for option in ((), ("--no-samples",)) if i % 2 else (("--no-samples",), ()):
            r, database = job(source, *option, pss_interval_s=COARSE_S)
            cpu_s[option] = r["cpu_s"]
            if not option:
                n_bytes = (database.parent / "samples.jsonl").stat().st_size
        ratios.append(cpu_s[()] / cpu_s[("--no-samples",)] - 1)
        differences_s.append(cpu_s[()] - cpu_s[("--no-samples",)])
    ratios.sort()
    quarter = len(ratios) // 4
    spread = f"{statistics.median(ratios):+.1%} (half of them {ratios[quarter]:+.1%} to {ratios[-1 - quarter]:+.1%})"
    size = sum(path.stat().st_size for path in source.iterdir())
    what = f"CPU time with samples against --no-samples, `filter gopher` of {size / 1e6:.0f} MB, {n_pairs} pairs"
    note("shown", what, spread, statistics.median(ratios) < MAX_SHOWN)
    note("shown", "... as a difference", f"{statistics.median(differences_s) * 1e3:.0f} ms")
    note("shown", "bytes of samples in the run directory", f"{n_bytes / 1e6:.2f} MB", n_bytes < MAX_SHOWN_BYTES)


def _about(database: Path, key: str) -> float:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        return float(json.loads(db.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()[0]))


def _peak(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        return int(db.execute("SELECT max(peak_bytes) FROM samples").fetchone()[0])


def page(quick: bool) -> None:
    """Measure a run of 100,000 partitions: from asking for the page to all charts drawn, in chromium."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    from tests.support.made_run import make_run

    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        note("page", "chromium and chromedriver are not installed", "not measured")
        return
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", seconds=3600, n_workers=16, n_units=100_000)
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={folder}/profile",
        ):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(driver_path))
        try:
            seconds = []
            for _ in range(3):
                with _served(run) as url:
                    driver.get("about:blank")
                    began = time.monotonic()
                    driver.get(url)
                    while not driver.execute_script(
                        "return document.querySelectorAll('#memory svg, #map svg').length > 1"
                    ):
                        time.sleep(0.02)
                    seconds.append(time.monotonic() - began)
        finally:
            driver.quit()
    shown = ", ".join(f"{s:.2f}" for s in seconds)
    note(
        "page",
        "100,000 partitions: all charts drawn after",
        f"{shown} s, each time by a fresh server",
        max(seconds) < MAX_S,
    )


@contextlib.contextmanager
def _served(run: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tamis.observe.dashboard", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1]
        finally:
            process.kill()


def write() -> None:
    lines = [
        "# Figures of observing",
        "",
        "Written by `make bench-observe`; what each part does: benchmarks/observe.py.",
        "",
    ]
    write_page("benchmarks-observe.md", [*lines, *table(ROWS)])


if __name__ == "__main__":
    sys.exit(
        run_parts(
            (__doc__ or "").splitlines()[0],
            {"cost": cost, "shown": shown, "samples": samples, "page": page},
            OUT,
            write,
        )
    )
