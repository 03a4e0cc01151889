"""The report of a real run in a real browser: hostile texts do nothing, everything works by keys, it stays small.

axe-core, which finds what people with disabilities cannot use, is taken from $TAMIS_AXE (a path) or the npm registry;
it is not part of Tamis.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tamis.cli.main import app
from tests.support.chromium import Browser
from tests.support.cli_runner import CliRunner
from tests.support.command import tamis
from tests.support.run_dirs import run_dir_path

pytestmark = pytest.mark.timeout(300)
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    '"><svg onload=window.hacked=1>',
    "' autofocus onfocus='window.hacked=1",
    '</pre></details></main><iframe src="javascript:window.top.hacked=1"></iframe>',
    "<style>body{display:none}</style>",
    "</script><script>window.hacked=1</script>",
    "{{constructor.constructor('window.hacked=1')()}}",
    "javascript:window.hacked=1",
    "\u202e<b>reversed</b>\u0000\ud7ff",
    "<base href='http://127.0.0.1:9/'><link rel=stylesheet href=x><meta http-equiv=refresh content='0;url=x'>",
)
RECIPE = """
name: "<script>window.hacked = 1</script>"
input: ???
output: ???
steps:
  - _target_: tamis.stages.text.modifiers.Modify
    modifier_fn: [{_target_: tamis.stages.text.modifiers.PiiRedactor}]
    name: redact
  - _target_: tamis.stages.text.filters.ScoreFilter
    filter_obj:
      - {_target_: tamis.stages.text.filters.heuristic.WordCountFilter, min_words: 20}
      - {_target_: tamis.stages.text.filters.heuristic.RepeatedLinesFilter, max_repeated_line_fraction: 0.7}
      - {_target_: tamis.stages.text.filters.heuristic.NumbersFilter, max_number_to_text_ratio: 0.1}
    name: rules
  - exact_duplicates: {}
  - fuzzy_duplicates: {}
"""
FITS = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"


def write_corpus(folder: Path) -> None:
    """Write documents whose every field is hostile, some of them short, repeated, or duplicates."""
    rng, words = random.Random(7), ["the", "of", "sieve", "drum", "corpus", "memory", "budget", "paper", "word", "line"]
    for source in ("books", "web"):
        (folder / source).mkdir(parents=True)
        records: list[dict[str, Any]] = []
        for i in range(700):
            evil = HOSTILE[i % len(HOSTILE)]
            lines = [" ".join(rng.choice(words) for _ in range(rng.randint(3, 14))) for _ in range(rng.randint(1, 9))]
            lines = lines * rng.choice((1, 1, 1, 4)) + [f"{evil} someone.{i}@example.com" if i % 5 == 0 else evil]
            url = f"https://{evil if i % 9 == 0 else source + str(i % 3)}.example/{i}"
            record = {"id": f"{evil}-{source}-{i}", "url": url, "language": rng.choice(["en", "de", evil])}
            records.append({**record, "text": "\n".join(lines)})
            if i % 6 == 0:
                records.append({**record, "id": f"copy-{i}", "text": records[-1]["text"] + " more"})
        lines_of_file = [json.dumps(r, ensure_ascii=False).replace("\u0000", "\\u0000") for r in records]
        (folder / source / "a.jsonl").write_text("\n".join([*lines_of_file, HOSTILE[0]]) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    write_corpus(folder / "in")
    (folder / "recipe.yaml").write_text(RECIPE)
    arguments = ["curate", str(folder / "in"), str(folder / "out"), "--preset", str(folder / "recipe.yaml"), "-q"]
    result = tamis(*arguments, "--memory", "900MB", "--workers", "1", "--quarantine-limit", "5%")
    assert result.exit_code == 0, result.output
    return run_dir_path(folder / "out") / "report.html"


def opened(browser: Browser, report: Path, width: int = 1300, scheme: str = "light") -> None:
    browser.look(width, 900, scheme)
    browser.driver.get(f"file://{report}")


def test_hostile_texts_are_texts(browser: Browser, report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    opened(browser, report)
    assert browser.run("return document.querySelectorAll('.doc').length") > 100
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert browser.run("return window.hacked === undefined && getComputedStyle(document.body).display !== 'none'")
    assert browser.run("return document.querySelectorAll('main iframe, main img, main script, main base').length") == 0
    assert browser.run(
        "return document.body.textContent.includes(arguments[0])".replace("arguments[0]", json.dumps(HOSTILE[0]))
    )
    assert browser.complaints() == []
    assert "\u202e" not in page
    assert re.search(r"someone\.[0-9]+@", page) is None
    assert "&lt;EMAIL&gt;" in page


def test_a_script_of_another_kind_is_not_run(browser: Browser, report: Path, tmp_path: Path) -> None:
    """If a text became markup after all, the policy of the page would stop it."""
    broken = tmp_path / "report.html"
    broken.write_text(report.read_text(encoding="utf-8").replace("<main ", f"{HOSTILE[0]}{HOSTILE[1]}<main ", 1))
    opened(browser, broken)
    assert browser.run("return window.hacked === undefined")
    assert any("Content Security Policy" in line for line in browser.complaints())


def test_small_fast_and_without_network(browser: Browser, report: Path) -> None:
    assert report.stat().st_size < 2_000_000
    opened(browser, report)
    entry = "const e = performance.getEntriesByType('navigation')[0]; return [e.loadEventEnd, e.domComplete]"
    assert browser.run(entry)[0] > 0
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.run("return document.querySelectorAll('*').length") < 15_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1400])
def test_it_fits_the_screen(browser: Browser, report: Path, width: int, scheme: str) -> None:
    opened(browser, report, width, scheme)
    assert browser.run(FITS)
    if width == 390:
        assert browser.run("return document.documentElement.scrollHeight") < 12_000
    assert browser.complaints() == []


def test_it_prints_on_few_pages(browser: Browser, report: Path) -> None:
    opened(browser, report)
    n_pages = len(re.findall(rb"/Type\s*/Page[^s]", browser.pdf()))
    assert 2 <= n_pages <= 12


def test_without_scripts_everything_can_be_read(browser: Browser, report: Path) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened(browser, report)
        shown = browser.driver.find_element("css selector", "main").text
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    for part in ("were kept", "Flow", "word_count", "Samples", "What held this run back", "tamis rethreshold"):
        assert part in shown


def test_a_slider_counts_what_passes_and_writes_the_command(browser: Browser, report: Path) -> None:
    opened(browser, report)
    slide = "const s = document.querySelector('.rule[open] .slide'); const i = s.querySelector('input');"
    before = browser.run(f"{slide} return s.querySelector('output').textContent")
    assert "pass this rule alone" in before
    move = "i.value = i.max; i.dispatchEvent(new Event('input')); return [s.querySelector('output').textContent,"
    after, command = browser.run(f"{slide} {move} s.parentElement.querySelector('code[data-start]').textContent]")
    assert after != before
    assert command.startswith("tamis rethreshold")
    arguments = ["rethreshold", *command.split()[2:]]
    assert CliRunner().invoke(app, arguments).exit_code == 0, arguments


def test_a_click_in_the_flow_leads_to_the_rule_and_its_samples(browser: Browser, report: Path) -> None:
    opened(browser, report)
    link = "document.querySelector('#flow .tab svg a[href^=\"#rule-\"]')"
    click = "new MouseEvent('click', {bubbles: true, cancelable: true, view: window})"
    browser.run(f"{link}.dispatchEvent({click})")
    browser.wait("return location.hash.startsWith('#rule-')", "the address names the rule")
    browser.wait("return document.getElementById(location.hash.slice(1)).open", "the rule is unfolded")
    shown = "[...document.querySelectorAll('.list > .doc:not([hidden])')]"
    rule = "const r = document.getElementById(location.hash.slice(1)).dataset.rule;"
    others = f"{shown}.filter((d) => d.dataset.rule !== r)"
    browser.wait(f"{rule} return {others}.length === 0", "only samples of the rule are shown")
    browser.wait("return !document.getElementById('every-rule').hidden", "all rules can be chosen again")
    assert browser.run(
        "const b = document.getElementById('every-rule'); const was = b.hidden; b.click(); return !was && b.hidden"
    )


def test_the_flow_is_shown_in_documents_bytes_or_tokens(browser: Browser, report: Path) -> None:
    opened(browser, report)
    tabs = "[...document.querySelectorAll('#flow .tab')]"
    shown = f"return {tabs}.filter((t) => t.checkVisibility()).map((t) => t.textContent)"
    heads = {"documents": "records of the input", "bytes": "bytes of the input", "tokens": "tokens of the input"}
    for unit, head in heads.items():
        browser.driver.find_element("css selector", f"label[for=flow-{unit}]").click()
        (chart,) = browser.run(shown)
        assert head in chart
        assert ("An estimate" in chart) == (unit == "tokens")
    browser.look(390, 900)
    browser.driver.get(f"file://{report}")
    browser.driver.find_element("css selector", "label[for=flow-tokens]").click()
    assert browser.run(FITS)


def test_samples_are_searched_and_walked_through_by_keys(browser: Browser, report: Path) -> None:
    from selenium.webdriver import ActionChains

    opened(browser, report)
    n = "return document.querySelectorAll('.list > .doc:not([hidden])').length"
    everything = browser.run(n)
    field = browser.driver.find_element("css selector", "#samples input[type=search]")
    field.send_keys("copy-6")
    assert 0 < browser.run(n) < everything
    field.clear()
    browser.run("document.querySelector('[data-show=changed]').click()")
    shown = "[...document.querySelectorAll('.list > .doc:not([hidden])')]"
    assert browser.run(f"return {shown}.every((d) => d.dataset.outcome === 'changed')")
    assert browser.run("return document.querySelectorAll('.list .two').length") > 0
    browser.run("document.querySelector('[data-show=\"\"]').click(); document.activeElement.blur()")
    place = "return [...document.querySelectorAll('.list > .doc')].findIndex((d) => d.open)"
    places = []
    for key in "jjjk":
        ActionChains(browser.driver).send_keys(key).perform()
        places.append(browser.run(place))
    assert places == [0, 1, 2, 1]


def axe(tmp_path: Path) -> str:
    """Return the source of axe-core."""
    if path := os.environ.get("TAMIS_AXE"):
        return Path(path).read_text(encoding="utf-8")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core: give its path as TAMIS_AXE, or install npm")
    packed = subprocess.run([npm, "pack", "axe-core@4"], cwd=tmp_path, capture_output=True, check=False, timeout=120)
    if packed.returncode:
        pytest.skip("axe-core: the npm registry cannot be reached; give its path as TAMIS_AXE")
    shutil.unpack_archive(next(tmp_path.glob("axe-core-*.tgz")), tmp_path)
    return (tmp_path / "package/axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, report: Path, tmp_path: Path, scheme: str) -> None:
    source = axe(tmp_path)
    opened(browser, report, 1300, scheme)
    browser.run("document.querySelectorAll('.rule, .doc:first-of-type').forEach((d) => { d.open = true; })")
    browser.run(source + "; window.axe = axe;")
    browser.driver.set_script_timeout(120)
    found = browser.driver.execute_async_script(
        "const done = arguments[0]; axe.run().then((r) => done(r.violations), (e) => done(String(e)))"
    )
    assert not isinstance(found, str), found
    serious = [
        (v["id"], v["impact"], [node["html"][:150] for node in v["nodes"][:3]])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []
