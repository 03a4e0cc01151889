"""Figures of web archives: `make bench-web`, or `python benchmarks/web.py [--html DIR] [--megabytes 300] [--write]`.

Takes HTML that is on the machine (documentation packages; `--html` names others), writes it to one WARC file with
warcio, and runs Tamis under 512 MB beside a bare loop of fastwarc and an extractor that writes the same JSONL: CPU
seconds of the whole process tree, in turns, the least of each, less those of a run over one page (starting), and how
busy the cores were in whole runs by themselves (on a quiet machine). Then peaks over sizes, random kills, hostile
files, URL rules beside datatrove's, and the `fineweb` preset in one command beside its steps apart. `--write`:
benchmarks-web.md, of which only the parts that ran are written anew. `--only` runs one part, on two quiet cores in
about: speed 10 minutes (`--extractor resiliparse`: 3), memory 6 (files of 20 MB to 1 GB), kills 4, hostile 2, urls 4,
preset 5.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from figures import DOCS, ROWS, exit_code, note, put_rows, table, write_page
from measuring import TAMIS, measure
from tamis.stores.run_locations import run_dir_of

BUDGET, BUDGET_MB = "512MB", 512
SHARES = {"resiliparse": 1.0, "trafilatura": 0.1, "justext": 0.1}  # of --megabytes, for each extractor
HTML = ("/usr/share/doc", "/usr/lib/python3/dist-packages", "/usr/share/gtk-doc")
LOOP = """
import json, sys
from fastwarc.warc import ArchiveIterator, WarcRecordType
from resiliparse.parse.encoding import bytes_to_str, detect_encoding
def resiliparse():
    from resiliparse.extract.html2text import extract_plain_text
    return lambda html: extract_plain_text(html, main_content=True, alt_texts=False, links=False)
def trafilatura():
    from trafilatura import extract
    from trafilatura.deduplication import LRU_TEST
    def text(html):
        LRU_TEST.clear()
        return extract(html, favor_precision=True, include_comments=False, deduplicate=True)
    return text
def justext():
    from justext import get_stoplist, justext
    words = get_stoplist("English")
    return lambda html: "\\n\\n".join(p.text for p in justext(html, words) if not p.is_boilerplate)
text_of = globals()[sys.argv[2]]()
with open(sys.argv[3], "w") as out:
    for record in ArchiveIterator(open(sys.argv[1], "rb"), record_types=WarcRecordType.response):
        body = record.reader.read()
        try:
            text = text_of(bytes_to_str(body, detect_encoding(body)))
        except Exception:
            text = None
        row = {"url": record.headers.get("WARC-Target-URI"), "warc_id": record.record_id, "text": text}
        out.write(json.dumps(row, ensure_ascii=False, default=str) + "\\n")
"""


# -- data -------------------------------------------------------------------------------------------------------------
def pages(roots: list[str]) -> Iterator[tuple[str, bytes]]:
    """HTML files below these folders, in an order that mixes them, again and again."""
    paths = sorted(str(p) for root in roots for p in Path(root).rglob("*.htm*") if p.is_file())
    if not paths:
        raise SystemExit(
            f"no HTML below {', '.join(roots)}: install documentation packages, or name folders with --html"
        )
    random.Random(7).shuffle(paths)
    n = 0
    while True:
        for path in paths:
            body = Path(path).read_bytes()
            if 0 < len(body) <= 1_000_000:
                n += 1
                yield f"https://host{n % 997}.example.org{path}?{n}", body


def write_warc(path: Path, roots: list[str], n_bytes: int) -> int:
    """Write pages with their requests, record by record compressed; returns the bytes of HTML in it."""
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    total = 0
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for url, body in pages(roots):
            headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html; charset=utf-8")], protocol="HTTP/1.1")
            request = StatusAndHeaders("GET / HTTP/1.1", [("Host", "example.org")], is_http_request=True)
            for kind, payload, http in (("request", b"", request), ("response", body, headers)):
                writer.write_record(writer.create_warc_record(url, kind, io.BytesIO(payload), http_headers=http))
            total += len(body)
            if total >= n_bytes:
                return total
    return total


def recipe(folder: Path, source: Path, output: Path, extractor: str, cpu_s: float = 30) -> Path:
    path = folder / f"{output.name}.yaml"
    path.write_text(
        "name: web\nstages:\n"
        f"  - {{_target_: tamis.stages.text.io.reader.WarcReader, file_paths: {source}}}\n"
        f"  - {{_target_: tamis.stages.text.html.HtmlExtract, extractor: {extractor}, cpu_seconds: {cpu_s}}}\n"
        f"  - {{_target_: tamis.stages.text.io.writer.JsonlWriter, path: {output}}}\n"
    )
    return path


def run_tamis(
    folder: Path, source: Path, name: str, extractor: str = "resiliparse", cpu_s: float = 30
) -> dict[str, Any]:
    output = folder / name
    for path in (output, run_dir_of(str(output))):
        shutil.rmtree(path, ignore_errors=True)
    command = [TAMIS, "run", str(recipe(folder, source, output, extractor, cpu_s)), "--memory", BUDGET, "--json"]
    return measure([*command, "--quarantine-limit", "100%"])


def run_alone(folder: Path, source: Path, name: str, extractor: str) -> tuple[float, float]:
    """Return CPU and wall seconds of a run without the sampler of `measure`, which takes time of the cores itself."""
    output = folder / name
    for path in (output, run_dir_of(str(output))):
        shutil.rmtree(path, ignore_errors=True)
    command = [TAMIS, "run", str(recipe(folder, source, output, extractor)), "--memory", BUDGET, "--json"]
    before, began = os.times(), time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after, wall_s = os.times(), time.monotonic() - began
    return after.children_user + after.children_system - before.children_user - before.children_system, wall_s


def documents(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["warc_id"]] = row["text"]
    return found


# -- parts ------------------------------------------------------------------------------------------------------------
def note_busy(part: str, what: str, cpu_s: float, wall_s: float) -> None:
    """Note which share of the cores' time was used; there is a goal if nobody else needs them."""
    n_cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    busy = cpu_s / max(wall_s, 0.01) / n_cores
    goal = busy >= 0.95 if load <= n_cores + 1 else None
    note(part, f"{what}: {n_cores} cores busy on one file", f"{busy:.0%} (load {load:.0f})", goal)


def speed(folder: Path, roots: list[str], megabytes: int, extractors: list[str] | None = None) -> None:
    source, one = folder / "speed.warc.gz", folder / "one.warc.gz"
    write_warc(one, roots, 1)
    (folder / "loop.py").write_text(LOOP)
    for extractor in extractors or SHARES:
        share = SHARES[extractor]
        n_bytes = write_warc(source, roots, int(megabytes * 1e6 * share))
        start = min(run_tamis(folder, one, "one", extractor)["cpu_s"] for _ in range(2))
        theirs, ours = [], []
        for _ in range(3):
            loop = [sys.executable, str(folder / "loop.py"), str(source), extractor, str(folder / "loop.jsonl")]
            theirs.append(measure(loop)["cpu_s"])
            ours.append(run_tamis(folder, source, "speed", extractor)["cpu_s"] - start)
        ratio = min(theirs) / max(min(ours), 0.01)
        what = f"{extractor}: {n_bytes / 1e6:,.0f} MB of HTML in one file, beside a bare loop"
        figure = f"{ratio:.0%} of its speed ({min(ours):.1f} CPU s, the loop {min(theirs):.1f}, starting {start:.1f})"
        note("speed", what, figure, ratio >= 0.9)
        alone = [run_alone(folder, source, "speed", extractor) for _ in range(3)]
        note_busy("speed", extractor, *max(alone, key=lambda taken: taken[0] / taken[1]))


def memory(folder: Path, roots: list[str], megabytes: int) -> None:
    part = folder / "part.warc.gz"
    n_bytes = write_warc(part, roots, min(100, megabytes // 3) * 1_000_000)
    for times in (1, 10, 50):  # 100 MB, 1 GB, 5 GB of --megabytes 300
        source = folder / "memory.warc.gz"
        with source.open("wb") as file:
            for _ in range(times):
                file.write(part.read_bytes())
        about = run_tamis(folder, source, "memory")
        peak = about["peak_pss_mb"]
        what = f"{times * n_bytes / 1e6:,.0f} MB of HTML in one file of {source.stat().st_size / 1e6:,.0f} MB"
        note("memory", f"{what} under {BUDGET}", f"peak {peak:,.0f} MB", peak <= BUDGET_MB)
        if times > 1:
            note_busy("memory", what, about["cpu_s"], about["wall_s"])


def kills(folder: Path, roots: list[str], n_kills: int) -> None:
    source = folder / "kills.warc.gz"
    write_warc(source, roots, 30_000_000)
    expected = run_tamis(folder, source, "undisturbed")["said"]["content_hash"]
    output, rng, n_done = folder / "killed", random.Random(11), 0
    shutil.rmtree(output, ignore_errors=True)
    command = [TAMIS, "run", str(recipe(folder, source, output, "resiliparse")), "--memory", BUDGET, "--json"]
    while n_done < n_kills:
        if Path(run_dir_of(output), "manifest.json").exists():
            shutil.rmtree(run_dir_of(output))
            shutil.rmtree(output, ignore_errors=True)
        size = rng.choice(["1MB", "2MB", "4MB", "8MB"])
        with open(os.devnull, "wb") as null:
            job = subprocess.Popen([*command, "--blocksize", size], stdout=null, stderr=null, start_new_session=True)
        time.sleep(rng.uniform(0.5, 5))
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            n_done += 1
        job.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["content_hash"] if done.returncode == 0 else done.stderr[-200:]
    note(
        "kills",
        f"{n_kills} random kills of the whole run, other block sizes",
        f"content hash {found[:12]}",
        found == expected,
    )


def hostile_files(folder: Path) -> dict[str, tuple[bytes, str]]:
    """Hostile records between two good ones: the file, and what is to become of the record."""

    def record(block: bytes, kind: str = "response", length: object = None, more: str = "") -> bytes:
        size = len(block) if length is None else length
        head = (
            f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: http://x.org/\r\n{more}Content-Length: {size}\r\n\r\n"
        )
        return gzip.compress(head.encode() + block + b"\r\n\r\n", 6, mtime=0)

    def http(body: bytes, *headers: str) -> bytes:
        return "\r\n".join(["HTTP/1.1 200 OK", "Content-Type: text/html", *headers]).encode() + b"\r\n\r\n" + body

    zeros = bytes(200_000_000)
    bomb = gzip.compress(zeros)
    good = record(http(b"<p>A good page, before and after."))
    nested = b"".join(record(http(b"<p>inner")) for _ in range(50))
    attributes = "<div " + " ".join(f"a{i}=1" for i in range(200_000)) + ">x"
    cases = {
        "gzip bomb of 200 MB": (record(http(bomb, "Content-Encoding: gzip")), "quarantined"),
        "gzip in gzip bomb": (record(http(gzip.compress(bomb), "Content-Encoding: gzip, gzip")), "quarantined"),
        "member that is a bomb": (record(http(b" " * 200_000_000)), "quarantined"),
        "Content-Length of 10^17": (record(http(b"x"), length=10**17), "quarantined"),
        "Content-Length that is no number": (record(http(b"x"), length="-1"), "quarantined"),
        "headers without an end": (record(http(b"x"), more="A: " + "b" * 200_000), "quarantined"),
        "5,000 headers": (record(http(b"x"), more="A: b\r\n" * 5000), "quarantined"),
        "10,000 codings": (record(http(b"x", "Content-Encoding: " + "gzip, " * 10_000 + "gzip")), "skipped"),
        "encoding that does not exist": (record(http(b"x", "Content-Encoding: rot13")), "skipped"),
        "charset punycode": (
            record(http(b"<p>plain words here", "Content-Type: text/html; charset=punycode")),
            "document",
        ),
        "body that lies about gzip": (record(http(b"<p>plain words here", "Content-Encoding: gzip")), "document"),
        "chunk sizes that lie": (record(http(b"ffffffff\r\n<p>words", "Transfer-Encoding: chunked")), "document"),
        "WARC file in a record": (record(nested, "resource", more="Content-Type: application/gzip\r\n"), "skipped"),
        "100,000 nested elements": (record(http(b"<div>" * 100_000 + b"deep")), "quarantined"),
        "300,000 tags": (record(http(b"<b>a</b>" * 300_000)), "quarantined"),
        "200,000 attributes of one element": (record(http(attributes.encode())), "document or quarantined"),
        "60 MiB of text in one page": (record(http(b"word " * (12 << 20))), "quarantined"),
        "cut in the middle": (good[: len(good) // 2], "quarantined"),
        "bytes of chance": (random.Random(1).randbytes(100_000), "quarantined"),
    }
    return {name: (good + data + good, outcome) for name, (data, outcome) in cases.items()}


def hostile(folder: Path, roots: list[str], megabytes: int) -> None:
    for name, (data, expected) in hostile_files(folder).items():
        source = folder / "hostile.warc.gz"
        source.write_bytes(data)
        about = run_tamis(folder, source, "hostile", cpu_s=5)
        said, peak = about["said"], about["peak_pss_mb"]
        n_written = said.get("n_written", -1)
        n_bad = said.get("n_quarantined", 0) + said.get("n_bad_ranges", 0)
        got = "document" if n_written > 2 else "quarantined" if n_bad else "skipped" if n_written == 2 else said
        ok = n_written >= 2 and str(got) in expected and peak <= BUDGET_MB
        note("hostile", name, f"{got}; both good pages read: {n_written >= 2}; peak {peak:,.0f} MB", ok)


def urls(folder: Path, roots: list[str], n_urls: int) -> None:
    import tarfile

    import datatrove
    import numpy as np
    import tldextract
    from datatrove.data import Document
    from datatrove.pipeline.filters.url_filter import URLFilter

    from tamis.stages.text.urls import UrlFilter
    from tamis.stages.text.urls.filter import RULES

    assets = Path(datatrove.__file__).parent / "assets"
    lists = folder / "lists"
    lists.mkdir(exist_ok=True)
    with tarfile.open(next(assets.glob("url_filterblacklists*.tar.gz"))) as tar:
        tar.extractall(lists, filter="data")
    for path in assets.glob("*banned*words.txt"):
        shutil.copy(path, lists)
    rng = random.Random(3)
    domains = (lists / "domains").read_text(errors="replace").splitlines()
    listed = (lists / "urls").read_text(errors="replace").splitlines()
    words = [
        line.strip() for path in lists.glob("*words.txt") for line in path.read_text().splitlines() if line.strip()
    ]
    made = []
    for _ in range(n_urls):
        name = f"{rng.choice(['www.', 'a.b.', ''])}host{rng.randrange(10**6)}"
        host = rng.choice(domains) if rng.random() < 0.2 else f"{name}.{rng.choice(['com', 'co.uk', 'de', 'org'])}"
        path = "-".join(rng.choice([*["news", "page", "2024", "Index"] * 50, *words]) for _ in range(3))
        made.append(rng.choice(listed) if rng.random() < 0.02 else f"{rng.choice(['http', 'https'])}://{host}/{path}")
    began = time.process_time()
    stage = UrlFilter(str(lists))
    tables = stage._load()
    load_s = time.process_time() - began
    began = time.process_time()
    ours = np.concatenate([tables.verdicts(made[i : i + 5000]) for i in range(0, n_urls, 5000)])
    ours_s = time.process_time() - began
    named = {
        name: (lists / f"{name}.txt").read_text().splitlines()
        for name in ("banned_words", "banned_subwords", "soft_banned_words")
    }
    named = {name: [line for line in lines if line] for name, lines in named.items()}
    theirs = URLFilter(extra_domains=domains, extra_urls=listed, use_integrated_lists=False, **named)
    theirs.tldextractor = tldextract.TLDExtract(cache_dir=None, suffix_list_urls=())
    reasons = dict(
        zip(
            ("domain", "subdomain", "url", "hard_blacklisted", "soft_blacklisted", "blacklisted_subword"),
            range(1, 7),
            strict=True,
        )
    )
    began = time.process_time()
    n_other = 0
    for i, url in enumerate(made):
        verdict = theirs.filter(Document("", "", metadata={"url": url}))
        n_other += (0 if verdict is True else reasons[verdict[1]]) != int(ours[i])
    theirs_s = time.process_time() - began
    what = f"{n_urls:,} URLs by datatrove's own lists ({tables._domains.n + tables._urls.n:,} entries)"
    counts = ", ".join(f"{rule} {int((ours == k).sum()):,}" for k, rule in enumerate(RULES, 1))
    note("urls", what, f"{n_other:,} verdicts differ ({counts})", n_other == 0)
    note("urls", "the same, CPU seconds", f"{ours_s:.1f} and {load_s:.1f} to load; datatrove {theirs_s:.1f}")
    note("urls", "the table of all workers", f"{8 * (tables._domains.n + tables._urls.n) / 1e6:.1f} MB")


def preset(folder: Path, roots: list[str], megabytes: int) -> None:
    crawl = folder / "crawl"
    crawl.mkdir(exist_ok=True)
    for extractor, share in (("resiliparse", 1.0), ("trafilatura", 0.1)):
        write_warc(crawl / "a.warc.gz", roots, int(megabytes * 1e6 * share))
        _preset(folder, crawl, extractor, megabytes * share)


def _preset(folder: Path, crawl: Path, extractor: str, megabytes: float) -> None:
    text = folder / "text"
    given = ["--preset", "fineweb", "--no-blocklists", "--set", f"extractor={extractor}", "--memory", BUDGET, "--json"]
    for path in (folder / "one", folder / "apart", text):
        shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(run_dir_of(str(path)), ignore_errors=True)
    one = measure([TAMIS, "curate", str(crawl), str(folder / "one"), *given])
    first = run_tamis(folder, crawl / "a.warc.gz", "text", extractor)
    lines = (Path(__file__).parents[1] / "src/tamis/recipe/presets/fineweb.yaml").read_text().splitlines(True)
    left_out = ("url_filter", "html_extract", "blocklists", "extractor")
    (folder / "rest.yaml").write_text("".join(line for line in lines if not any(word in line for word in left_out)))
    rest = ["--preset", str(folder / "rest.yaml"), "--memory", BUDGET, "--json"]
    second = measure([TAMIS, "curate", str(text), str(folder / "apart"), *rest])
    same = documents(folder / "one") == documents(folder / "apart")
    figure = f"{one['cpu_s']:.1f} CPU s, peak {one['peak_pss_mb']:,.0f} MB"
    figure += f"; text first, then the rest: {first['cpu_s'] + second['cpu_s']:.1f}; same documents: {same}"
    what = f"fineweb with {extractor} over {megabytes:,.0f} MB of HTML in one command"
    note("preset", what, figure, same and one["peak_pss_mb"] <= BUDGET_MB)


PARTS: dict[str, Callable[..., None]] = {
    "speed": speed,
    "memory": memory,
    "kills": kills,
    "hostile": hostile,
    "urls": urls,
    "preset": preset,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--html", action="append", help="folders with HTML files")
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--urls", type=int, default=1_000_000)
    parser.add_argument("--only", choices=sorted(PARTS), action="append")
    parser.add_argument("--extractor", choices=list(SHARES), action="append", help="of the part speed")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    roots = args.html or [root for root in HTML if os.path.isdir(root)]
    os.environ["TAMIS_PROFILES"] = "off"
    sizes = {"kills": args.kills, "urls": args.urls}
    with tempfile.TemporaryDirectory(prefix="tamis-web-") as folder:
        for name, part in PARTS.items():
            if not args.only or name in args.only:
                more = [args.extractor] if name == "speed" else []
                part(Path(folder), roots, sizes.get(name, args.megabytes), *more)
    page = DOCS / "benchmarks-web.md"
    if args.write and args.only and page.exists():
        for name in args.only:
            put_rows(page.name, [row for row in ROWS if row[0] == name])
    elif args.write:
        head = ["# Figures of web archives", "", f"Written by `make bench-web`, on {os.cpu_count()} cores.", ""]
        write_page(page.name, [*head, *table(ROWS)])
    return exit_code()


if __name__ == "__main__":
    sys.exit(main())
