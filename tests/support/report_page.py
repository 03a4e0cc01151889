"""A page of Tamis as a browser parses it: its text without scripts, its scripts, elements and attributes."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from tamis.observe.report import page as report

OWN_SCRIPT = Path(report.__file__).with_name("page.js").read_text(encoding="utf-8")


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.scripts: list[str] = []
        self.text = ""
        self._in_script = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value or "" for name, value in attrs if name in ("href", "src", "action", "data")}
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data
        else:
            self.text += data

    @property
    def is_harmless(self) -> bool:
        """Whether the only script is that of reports, and nothing leads out of the page."""
        events = {name for name in self.attributes if name.startswith("on")}
        out = {link for link in self.links if not link.startswith(("#", "data:image/"))}
        return self.scripts in ([], [OWN_SCRIPT]) and not events and not out and not self.seen & {"iframe", "object"}
