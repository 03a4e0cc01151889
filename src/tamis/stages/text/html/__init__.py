"""Text of web pages as a stage: HtmlExtract. Needs the extra `html`."""

from tamis.stages.text.html.extract import HtmlExtract

__all__ = ["HtmlExtract"]
