"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.decoder_utils is not part of Tamis: video is not here yet", name="tamis.utils.decoder_utils"
)
