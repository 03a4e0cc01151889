"""WikipediaDownloader: dump files over HTTPS."""

from __future__ import annotations

from tamis.stages.text.download.base.download import HttpDownloader


class WikipediaDownloader(HttpDownloader):
    """Two at a time: the servers refuse more connections than that."""

    def num_workers_per_node(self) -> int | None:
        return 2
