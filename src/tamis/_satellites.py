"""The manifest of satellites: parts that the core reaches by name and never imports.

The core (documents, formats, stores, memory, kernels, the engine, local executors, text stages, deduplication,
curation, recipes and commands) works without them. Satellites import the core: images and videos, models, downloads,
clusters, the dashboard, metrics, alerts and the report. This is the only file of the core that names them, besides the
public modules that are listed as exceptions in `.importlinter`; so a satellite can be added, replaced or left out by
changing one line.

Keys are grouped by what the core uses them for (`format.`, `executor.`, `alerts.`, ...); registries of the core list a
group with `names`. Nothing is imported before `load` is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

SATELLITES = {
    # formats/registry.py: modules with the names of a protocol of formats/base.py
    "format.images": "tamis.images.format",
    "format.video": "tamis.video.format",
    # formats that are written as several files at once: modules with `write`
    "packer.webdataset": "tamis.images.webdataset",
    # tasks/image.py and tasks/video.py: pixels and metadata, read when a user's stage asks for them
    "image.decode": "tamis.images.decode:decode",
    "image.read_span": "tamis.images.decode:read_span",
    "image.encode": "tamis.images.encode:encode",
    "video.read_facts": "tamis.video.facts:read_facts",
    # the reader of any documents: a stage class that makes web pages texts
    "stage.html_extract": "tamis.stages.text.html:HtmlExtract",
    # sources of curations that are downloaded: stage classes
    "download.wikipedia": "tamis.stages.text.download:WikipediaDownloadExtractStage",
    "download.arxiv": "tamis.stages.text.download:ArxivDownloadExtractStage",
    "download.common_crawl": "tamis.stages.text.download:CommonCrawlDownloadExtractStage",
    # executors of --executor and Pipeline.run: classes
    "executor.ray": "tamis.backends.ray_actor_pool:RayActorPoolExecutor",
    "executor.ray_data": "tamis.backends.ray_data:RayDataExecutor",
    "executor.xenna": "tamis.backends.xenna:XennaExecutor",
    # every run: rules that judge it, the page about it
    "alerts.open_watch": "tamis.observe.alerts.watch:open_watch",
    "alerts.read_section": "tamis.observe.alerts.parse:read_section",
    "report.write": "tamis.observe.report:write_report",
    "report.compare": "tamis.observe.report.comparison:write_comparison",
    # commands that show a run
    "dashboard": "tamis.observe.dashboard",
    "dashboard.serving": "tamis.observe.serving",
    "metrics": "tamis.observe.metrics",
    "metrics.list": "tamis.observe.metrics.run_metrics:list_metrics",
    "metrics.collector": "tamis.observe.metrics.run_metrics:RunMetrics",
    "metrics.endpoint": "tamis.observe.metrics.endpoint:MetricsEndpoint",
    # commands with models, and the demo
    "dedup.text_semantic": "tamis.dedup.semantic.text_workflow:TextSemanticWorkflow",
    "dedup.default_embedding_model": "tamis.stages.text.embedders.base:DEFAULT_MODEL",
    "models.classifiers": "tamis.stages.text.classifiers",
    "demo.corpus": "tamis.demo.corpus",
    # recipes: the module whose classes describe a cluster (`ray_client:`)
    "recipe.client": "tamis.core.client",
}


def load(name: str) -> Any:
    """Import a satellite and return what its entry names: a module, or an attribute of it.

    >>> load("executor.ray_data").__name__
    'RayDataExecutor'
    """
    module, _, attribute = SATELLITES[name].partition(":")
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def module_of(name: str) -> str:
    """Return the dotted name of the module of a satellite without importing it.

    >>> module_of("executor.ray_data")
    'tamis.backends.ray_data'
    """
    return SATELLITES[name].partition(":")[0]


def names(group: str) -> list[str]:
    """Return the names of a group, without its prefix, in the order of the manifest.

    >>> names("executor")
    ['ray', 'ray_data', 'xenna']
    """
    prefix = f"{group}."
    return [name.removeprefix(prefix) for name in SATELLITES if name.startswith(prefix)]
