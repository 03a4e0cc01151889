"""Whether a piece of a page is well-formed, and what is in it."""

from __future__ import annotations

import xml.etree.ElementTree as ET


def parsed(html: str) -> ET.Element:
    """Images are XML: whatever was in the data must not break that.

    None of them carries a script or an inline style.
    """
    root = ET.fromstring(f"<div>{html}</div>")
    for element in root.iter():
        assert element.tag not in ("script", "style", "iframe", "object", "image", "a")
        for name in element.attrib:
            assert not name.startswith("on")
            assert name not in ("style", "href", "src")
    return root


def texts(html: str) -> list[str]:
    return ["".join(e.itertext()) for e in parsed(html).iter("text")]


def titles(html: str) -> list[str]:
    return ["".join(e.itertext()) for e in parsed(html).iter("title")]


def kinds(html: str) -> list[str]:
    return [e.attrib["class"] for e in parsed(html).iter() if "class" in e.attrib]
