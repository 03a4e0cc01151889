"""WikipediaDownloadExtractStage: the articles of a dump."""

from __future__ import annotations

from tamis.stages.text.download.base.stage import DocumentDownloadExtractStage
from tamis.stages.text.download.wikipedia.download import WikipediaDownloader
from tamis.stages.text.download.wikipedia.extract import WikipediaExtractor
from tamis.stages.text.download.wikipedia.iterator import WikipediaIterator
from tamis.stages.text.download.wikipedia.url_generation import WikipediaUrlGenerator


class WikipediaDownloadExtractStage(DocumentDownloadExtractStage):
    """Documents with text, title, id, url, language and source_id (and file_name) of one dump.

    `dump_date`: YYYYMMDD, by default the latest complete one. `url_limit` bounds the number of files, `record_limit`
    the articles of each.
    """

    def __init__(
        self,
        language: str = "en",
        download_dir: str = "./wikipedia_downloads",
        dump_date: str | None = None,
        wikidumps_index_prefix: str = "https://dumps.wikimedia.org",
        verbose: bool = False,
        url_limit: int | None = None,
        record_limit: int | None = None,
        add_filename_column: bool | str = True,
        log_frequency: int = 1000,
        download_limit: int | str | None = None,
        remove_files: bool = False,
    ) -> None:
        self.language, self.dump_date = language, dump_date
        super().__init__(
            url_generator=WikipediaUrlGenerator(language, dump_date, wikidumps_index_prefix),
            downloader=WikipediaDownloader(download_dir, verbose),
            iterator=WikipediaIterator(language, log_frequency),
            extractor=WikipediaExtractor(language),
            url_limit=url_limit,
            record_limit=record_limit,
            add_filename_column=add_filename_column,
            download_limit=download_limit,
            remove_files=remove_files,
        )
        self.name = f"wikipedia_{language}_pipeline"

    def get_description(self) -> str:
        return f"Wikipedia ({self.language}), dump {self.dump_date or 'of the latest complete date'}"
