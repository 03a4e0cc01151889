"""ArxivDownloadExtractStage: the papers of arXiv."""

from __future__ import annotations

from tamis.stages.text.download.arxiv.download import ArxivDownloader
from tamis.stages.text.download.arxiv.extract import ArxivExtractor
from tamis.stages.text.download.arxiv.iterator import ArxivIterator
from tamis.stages.text.download.arxiv.url_generation import ArxivUrlGenerator
from tamis.stages.text.download.base.stage import DocumentDownloadExtractStage


class ArxivDownloadExtractStage(DocumentDownloadExtractStage):
    """Documents with text (TeX), id and source_id (and file_name) of all papers. Needs the extra `s3`; who reads pays.

    `url_limit` bounds the number of archives, `record_limit` the papers of each.
    """

    def __init__(
        self,
        download_dir: str = "./arxiv_downloads",
        url_limit: int | None = None,
        record_limit: int | None = None,
        add_filename_column: bool | str = True,
        log_frequency: int = 1000,
        verbose: bool = False,
        download_limit: int | str | None = None,
        remove_files: bool = False,
    ) -> None:
        super().__init__(
            url_generator=ArxivUrlGenerator(),
            downloader=ArxivDownloader(download_dir, verbose),
            iterator=ArxivIterator(log_frequency),
            extractor=ArxivExtractor(),
            url_limit=url_limit,
            record_limit=record_limit,
            add_filename_column=add_filename_column,
            download_limit=download_limit,
            remove_files=remove_files,
        )
        self.name = "arxiv_pipeline"

    def get_description(self) -> str:
        return "Papers of arXiv, from their sources"
