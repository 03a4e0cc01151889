"""Make the pictures of docs/images from real runs: `make screenshots`, or names of pictures as arguments.

Terminal sessions become SVG, pages of the report and the dashboard PNG (headless chromium by way of selenium), and the
chart of peers is drawn from the tables in docs/explanation, so that it shows measured figures only. `readme` writes the
output that README.md shows. Two minutes on two cores. Everything runs in `PLACE`, removed in the end; input is Python's
own manual and text of this machine (`tamis demo`).
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tamis.stores.run_locations import run_dir_of

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
TAMIS = [str(Path(sys.executable).with_name("tamis"))]
PLACE = Path("/tmp/tamis")  # is seen in pictures: a path that was replaced would break the columns of tables
COLUMNS, ROWS = 110, 60
LINE_PX, CHAR_PX, PAD_PX = 18, 7.83, 14
COLOURS = ["#586069", "#f97583", "#85e89d", "#ffea7f", "#79b8ff", "#b392f0", "#76e3ea", "#e1e4e8"]
_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
_DEMO_SIZE = "60MB"
README_BLOCK = re.compile(r"(^```text\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)


# Terminal sessions


def session(folder: Path, *commands: str, rows: int = ROWS) -> str:
    """Run commands in a terminal of their own, and return an SVG of what they show, prompts included."""
    lines: list[str] = []
    for command in commands:
        lines.append(f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m")
        lines += _shown(folder, command, rows)
    return _svg(lines)


def _shown(folder: Path, command: str, rows: int) -> list[str]:
    """Return the lines that remain on the screen at the end of a command."""
    main, worker = pty.openpty()
    env = {**os.environ, "PATH": f"{Path(TAMIS[0]).parent}:{os.environ['PATH']}", "TERM": "xterm", "PWD": str(folder)}
    env |= {"COLUMNS": str(COLUMNS), "LINES": str(rows)}
    subprocess.run(["stty", "cols", str(COLUMNS), "rows", str(rows)], stdin=worker, check=True)
    process = subprocess.Popen(["bash", "-c", command], cwd=folder, stdin=worker, stdout=worker, stderr=worker, env=env)
    os.close(worker)
    chunks = []
    while True:
        try:
            data = os.read(main, 65536)
        except OSError:  # the other end was closed
            break
        if not data:
            break
        chunks.append(data)
    process.wait()
    os.close(main)
    text = b"".join(chunks).decode("utf-8", "replace").replace("\r\n", "\n")
    lines = [re.split(r"\r|\x1b\[2K", line)[-1] for line in text.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    lines = [folded for line in lines for folded in _folded(line)]
    return lines[:rows] + (["..."] if len(lines) > rows else [])


def _folded(line: str) -> list[str]:
    """Fold a line as a terminal does, after COLUMNS characters that are shown."""
    folded, n_shown = [""], 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", line):
        if not piece.startswith("\x1b"):
            if n_shown == COLUMNS:
                folded.append("")
                n_shown = 0
            n_shown += 1
        folded[-1] += piece
    return folded


def _svg(lines: list[str]) -> str:
    width = max(len(_SEQUENCE.sub("", line)) for line in lines) * CHAR_PX + 2 * PAD_PX
    width, height = max(560.0, width), len(lines) * LINE_PX + 2 * PAD_PX + 6
    rows = []
    for i, line in enumerate(lines):
        y = PAD_PX + 14 + i * LINE_PX
        rows.append(f'<text x="{PAD_PX}" y="{y:g}" xml:space="preserve">{_spans(line)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13" fill="#e1e4e8">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#1f2428"/>\n' + "\n".join(rows) + "\n</svg>\n"
    )


def _spans(line: str) -> str:
    """Return the text of a line with its colours; every span has its position, so that columns stay aligned."""
    spans, style, column, end = [], {}, 0, 0
    for match in [*_SEQUENCE.finditer(line), None]:
        text = line[end : match.start() if match else len(line)]
        if text:
            attributes = "".join(f' {k}="{v}"' for k, v in style.items())
            length = f' textLength="{len(text) * CHAR_PX:.1f}" lengthAdjust="spacingAndGlyphs"'
            x = f' x="{PAD_PX + column * CHAR_PX:.1f}"'
            spans.append(
                f"<tspan{x}{length}{attributes}>{html.escape(text, quote=False)}</tspan>" if text.strip() else ""
            )
            column += len(text)
        if match is None:
            break
        end = match.end()
        if match[2] == "m":
            style = _styled(style, match[1])
    return "".join(spans)


def _styled(style: dict[str, str], codes: str) -> dict[str, str]:
    style = dict(style)
    for code in (int(c or 0) for c in codes.split(";")):
        if code == 0:
            style = {}
        elif code == 1:
            style["font-weight"] = "bold"
        elif code == 2:
            style["opacity"] = "0.65"
        elif code == 22:
            style.pop("font-weight", None)
            style.pop("opacity", None)
        elif code == 39:
            style.pop("fill", None)
        elif code % 10 < 8 and code // 10 in (3, 9):
            style["fill"] = COLOURS[code % 10]
    return style


# Pages in a browser


class Browser:
    """A headless chromium that takes pictures of pages; used as a context manager."""

    def __enter__(self) -> Browser:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
            options.add_argument(flag)
        self.driver: Any = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def picture(self, url: str, target: Path, *, width: int = 1200, height: int = 800, heading: str = "") -> None:
        """Save what a page shows, from a heading that contains this text on."""
        from PIL import Image

        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get(url)
        time.sleep(2.0)  # the page draws its charts
        if heading:
            script = """const all = [...document.querySelectorAll("h1,h2,h3,summary")];
                const name = arguments[0].toLowerCase();
                const h = all.find(h => h.textContent.toLowerCase() === name)
                  ?? all.find(h => h.textContent.toLowerCase().includes(name));
                if (h) { window.scrollTo(0, h.getBoundingClientRect().top + window.scrollY - 12); } return !!h"""
            if not self.driver.execute_script(script, heading):
                raise SystemExit(f"{url}: no heading with {heading!r}")
            time.sleep(0.3)
        shown = Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")
        shown.quantize(128, method=Image.Quantize.MEDIANCUT).save(target, optimize=True)


# The chart of peers


def _figure(page: str, pattern: str) -> tuple[float, ...]:
    """Return the numbers of a row of a page of benchmarks."""
    text = (ROOT / f"docs/explanation/benchmarks-{page}.md").read_text(encoding="utf-8")
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"benchmarks-{page}.md has no row like {pattern!r}: correct tools/screenshots.py")
    return tuple(float(group.replace(",", "")) for group in match.groups())


def peers() -> str:
    """Draw measured figures of Tamis and its peers, as bars."""
    number = r"([\d.,]+)"
    nemo = _figure("text", rf"against nemo-curator, its start-up left out \| {number} and {number} documents/s")
    trove = _figure("text", rf"against datatrove, its start-up left out \| {number} and {number} documents/s")
    fuzzy = _figure("dedup", rf"5 words, 14 x 8, 100 MB, budget 512 MB \| best of 3 {number} s.*?peak {number} MB")
    juicer = _figure("dedup", rf"data-juicer, 5 words, 14 x 8, 100 MB \| {number} s.*?peak {number} MB")
    fuzzy_trove = _figure("dedup", rf"datatrove, 5 words, 14 x 8, 100 MB \| {number} s.*?peak {number} MB")
    exact = _figure("dedup", rf"exact, 1 GB, budget 512 MB.*? \| {number} s.*?peak {number} MB")
    polars = _figure("dedup", rf"polars, 1 GB: wall.*? \| {number} s.*?peak {number} MB")
    duckdb = _figure("dedup", rf"duckdb, 1 GB: wall.*? \| {number} s.*?peak {number} MB")

    def speed(value: float) -> str:
        return f"{value:,.0f} documents/s"

    def cost(values: tuple[float, ...]) -> str:
        return f"{values[0]:.1f} s, peak {values[1]:,.0f} MB"

    groups = [
        (
            "28 heuristic filters (longer is better)",
            [("Tamis", nemo[0], speed(nemo[0])), ("NeMo Curator", nemo[1], speed(nemo[1]))],
        ),
        (
            "Gopher rules (longer is better)",
            [("Tamis", trove[0], speed(trove[0])), ("datatrove", trove[1], speed(trove[1]))],
        ),
        (
            "Fuzzy deduplication of 100 MB (shorter is better)",
            [(n, v[0], cost(v)) for n, v in (("Tamis", fuzzy), ("data-juicer", juicer), ("datatrove", fuzzy_trove))],
        ),
        (
            "Exact deduplication of 1 GB (shorter is better)",
            [(n, v[0], cost(v)) for n, v in (("Tamis", exact), ("Polars", polars), ("DuckDB", duckdb))],
        ),
    ]
    parts, y = [], 26
    for title, bars in groups:
        parts.append(f'<text x="12" y="{y}" font-weight="bold">{title}</text>')
        y += 10
        longest = max(value for _, value, _ in bars)
        for name, value, label in bars:
            length = max(2.0, 380 * value / longest)
            colour = "#0b7285" if name == "Tamis" else "#adb5bd"
            parts.append(f'<text x="112" y="{y + 14}" text-anchor="end">{name}</text>')
            parts.append(f'<rect x="120" y="{y + 2}" width="{length:.1f}" height="15" fill="{colour}"/>')
            parts.append(f'<text x="{126 + length:.1f}" y="{y + 14}">{label}</text>')
            y += 21
        y += 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {y - 14}" width="720" height="{y - 14}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="13" fill="#212529">\n'
        '<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


# The output in README.md


def readme_output(folder: Path) -> str:
    """Return what a curation and a question print, without the table of rules and what only longer runs need."""
    lines = _printed(folder, "tamis curate data/ clean/ --memory 512MB --fresh -q")
    end = next(i for i, line in enumerate(lines) if line.startswith(" written")) + 1
    table = lines[lines.index("Documents") + 2 : end]
    last = [line for line in lines[end:] if re.match(r"[\d.]+ [kMG]?B in |output: |report: ", line)]
    why = [line for line in _printed(folder, "tamis why clean/ assert-0") if not line.startswith("  rules after it")]
    return "\n".join([*table, "", *last, "", *why]) + "\n"


def _printed(folder: Path, command: str) -> list[str]:
    """Return the lines that a command prints into a pipe, with short paths."""
    env = {**os.environ, "PATH": f"{Path(TAMIS[0]).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.replace(f"{folder}/", "").splitlines()


def write_readme(folder: Path) -> None:
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(README_BLOCK.sub(lambda m: m[1] + readme_output(folder) + m[3], text, count=1), encoding="utf-8")


# All pictures

_MISTAKE = """from tamis import ProcessingStage


class FirstWord(ProcessingStage):
    name = "first word"

    def process(self, batch):
        print("got", batch.num_items, "documents")
        return batch.with_column("first", [text.split()[0] for text in batch.values("txet")])
"""
_MISTAKE_RECIPE = """stages:
  - _target_: tamis.stages.text.io.reader.JsonlReader
    file_paths: data/
  - _target_: mistake.FirstWord
  - _target_: tamis.stages.text.io.writer.JsonlWriter
    path: first/
settings:
  memory: 512MB
"""


class Studio:
    """A temporary folder with a small corpus, a larger one, and runs over both, which pictures are made of."""

    def __init__(self, folder: Path) -> None:
        self.small, self.large = folder / "small", folder / "large"
        self._done: set[str] = set()

    def run(self, folder: Path, command: str) -> None:
        """Run a command in a folder, once for all pictures; exit code 3 is a result, too."""
        if command in self._done:
            return
        env = {**os.environ, "PATH": f"{Path(TAMIS[0]).parent}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
        self._done.add(command)

    def corpus(self) -> Path:
        """Return the folder of docs/start.md: its corpus, its modules and its recipe."""
        if not self.small.exists():
            self.small.mkdir()
            page = (ROOT / "docs/start.md").read_text(encoding="utf-8")
            for name, code in re.findall(
                r"^```(?:python|yaml)\n# ([\w.]+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
            ):
                (self.small / name).write_text(code)
            self.run(self.small, f"{sys.executable} make_corpus.py")
        return self.small

    def curated(self) -> Path:
        self.run(self.corpus(), "tamis curate data/ clean/ --memory 512MB -q")
        return self.small

    def broken(self) -> Path:
        """Return the folder of the corpus, with a stage that has a mistake and its recipe."""
        folder = self.corpus()
        (folder / "mistake.py").write_text(_MISTAKE)
        (folder / "mistake.yaml").write_text(_MISTAKE_RECIPE)
        return folder

    def images(self) -> Path:
        """Return the output of a curation of drawn images, some of them small, broken or repeated."""
        source = self.large.with_name("images")
        if not source.exists():
            import numpy as np
            from PIL import Image

            source.mkdir()
            for i in range(40):
                colours = np.random.default_rng(i % 30).integers(0, 256, (4, 5, 3), dtype=np.uint8)
                size = (320, 240) if i % 5 else (48, 36)
                Image.fromarray(colours).resize(size, Image.Resampling.BICUBIC).save(source / f"{i:02}.jpg", quality=90)
            (source / "text.jpg").write_text("not an image")
        result = source.with_name("clean-images")
        self.run(source.parent, f"tamis images {source.name} {result.name} --memory 512MB -q")
        return result

    def demo(self) -> Path:
        """Return the folder of a demo: `demo-output/corpus` and `demo-output/result`."""
        self.large.mkdir(exist_ok=True)
        self.run(self.large, f"tamis demo --size {_DEMO_SIZE}")
        return self.large

    def terminal(self, *commands: str, folder: Callable[[], Path], rows: int = ROWS) -> str:
        return session(folder(), *commands, rows=rows)

    def page(self, name: str, target: Path, heading: str = "", height: int = 800) -> None:
        """Take a picture of the report of the demo or of images, or of the dashboard."""
        result = self.images() if name == "images" else self.demo() / "demo-output/result"
        if name != "dashboard":
            with Browser() as browser:
                browser.picture(
                    Path(run_dir_of(result), "report.html").absolute().as_uri(), target, heading=heading, height=height
                )
            return
        command = ["tamis", "dashboard", str(result), "--port", "0", "--no-open"]
        with subprocess.Popen(
            [*TAMIS, *command[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as server:
            assert server.stdout is not None
            killer = threading.Timer(120, server.kill)
            killer.start()
            url = next(m[0] for line in server.stdout if (m := re.search(r"http://\S+", line)))
            with Browser() as browser:
                browser.picture(url, target, height=height)
            server.terminate()
            killer.cancel()


TERMINALS: dict[str, tuple[tuple[str, ...], str, int]] = {
    "inspect": (("tamis inspect data/",), "corpus", 34),
    "curate": (("tamis curate data/ clean/ --memory 512MB --fresh -q",), "corpus", 46),
    "quarantine": (("tamis quarantine clean/",), "curated", 20),
    "why": (("tamis why clean/ assert-0",), "curated", 16),
    "why-duplicate": (("tamis why clean/ mirror-binary",), "curated", 24),
    "rethreshold": (("tamis rethreshold clean/ line_punct_ratio=0.05",), "curated", 12),
    "plan": (("tamis plan recipe.yaml --allow-module mystages --memory 512MB",), "corpus", 40),
    "refused": (("tamis filter gopher data/ tiny/ --memory 100MB; echo exit code $?",), "corpus", 12),
    "mistake": (("tamis run mistake.yaml --allow-module mistake; echo exit code $?",), "broken", 30),
    "top": (("tamis top demo-output/result --once",), "demo", 60),
    "demo": ((f"tamis demo --size {_DEMO_SIZE}",), "empty", 60),
}
PAGES = {
    "report": ("report", "", 900),
    "report-memory": ("report", "Run", 900),
    "report-funnel": ("report", "Flow", 900),
    "report-rules": ("report", "Rules", 1000),
    "report-images": ("images", "Kept", 700),
    "dashboard": ("dashboard", "", 1000),
}


@contextlib.contextmanager
def _own_folder(path: Path) -> Iterator[str]:
    """Create a folder that is not there yet, and remove it in the end."""
    try:
        path.mkdir()
    except FileExistsError:
        raise SystemExit(f"{path} is there already; remove it, pictures are made in it") from None
    try:
        yield str(path)
    finally:
        shutil.rmtree(path)


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    others = ("peers", "readme")
    unknown = set(names) - {*TERMINALS, *PAGES, *others}
    if unknown:
        raise SystemExit(f"no picture named {', '.join(sorted(unknown))}: {', '.join([*TERMINALS, *PAGES, *others])}")
    os.environ["TAMIS_PROFILES"] = "off"  # what this machine has learned is not what a reader's has
    with _own_folder(PLACE) as folder:
        studio = Studio(Path(folder))
        (Path(folder) / "empty").mkdir()
        folders: dict[str, Callable[[], Path]] = {
            "corpus": studio.corpus,
            "curated": studio.curated,
            "broken": studio.broken,
            "demo": studio.demo,
            "empty": lambda: Path(folder) / "empty",
        }
        for name in names or [*others, *TERMINALS, *PAGES]:
            if name == "peers":
                (IMAGES / "peers.svg").write_text(peers(), encoding="utf-8")
            elif name == "readme":
                write_readme(studio.corpus())
            elif name in TERMINALS:
                commands, where, rows = TERMINALS[name]
                shown = studio.terminal(*commands, folder=folders[where], rows=rows)
                (IMAGES / f"{name}.svg").write_text(shown, encoding="utf-8")
            else:
                page, heading, height = PAGES[name]
                studio.page(page, IMAGES / f"{name}.png", heading, height)
            print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
