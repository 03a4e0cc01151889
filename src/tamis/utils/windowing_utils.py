"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.windowing_utils is not part of Tamis: video is not here yet", name="tamis.utils.windowing_utils"
)
