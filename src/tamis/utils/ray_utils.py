"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.ray_utils is not part of Tamis: not needed: there is no Ray cluster", name="tamis.utils.ray_utils"
)
