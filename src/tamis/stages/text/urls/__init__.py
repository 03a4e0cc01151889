"""Rules on the URLs of documents: UrlFilter."""

from tamis.stages.text.urls.filter import UrlFilter

__all__ = ["UrlFilter"]
