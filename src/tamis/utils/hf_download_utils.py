"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.hf_download_utils is not part of Tamis: huggingface_hub.snapshot_download",
    name="tamis.utils.hf_download_utils",
)
