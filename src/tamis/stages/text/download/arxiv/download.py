"""ArxivDownloader: archives with sources, from S3."""

from __future__ import annotations

from tamis.stages.text.download.arxiv.url_generation import PREFIX
from tamis.stages.text.download.base.download import DocumentDownloader, settled


class ArxivDownloader(DocumentDownloader):
    """Takes URLs (`s3://arxiv/src/arXiv_src_2401_001.tar`) or bare names."""

    def _get_output_filename(self, url: str) -> str:
        return url.rpartition("/")[2]

    def _download_to_path(self, url: str, path: str) -> tuple[bool, str | None]:
        from tamis.stages.text.download.remote import fetch_object

        return settled(lambda: fetch_object(url if "://" in url else f"{PREFIX}/{url}", path, requester_pays=True))
