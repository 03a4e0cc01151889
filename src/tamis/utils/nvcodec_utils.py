"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.nvcodec_utils is not part of Tamis: films are decoded on the CPU: tamis.utils.decoder_utils",
    name="tamis.utils.nvcodec_utils",
)
