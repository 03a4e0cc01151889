"""WikipediaDownloader: dump files over HTTPS."""

from __future__ import annotations

from tamis.stages.text.download.base.download import HttpDownloader
from tamis.stages.text.download.names import name_of_url


class WikipediaDownloader(HttpDownloader):
    """Two at a time: the servers refuse more connections than that."""

    def _get_output_filename(self, url: str) -> str:
        return name_of_url(url)

    def num_workers_per_node(self) -> int | None:
        return 2
