"""Not part of Tamis; whoever imports it is told what to use."""

raise ModuleNotFoundError(
    "tamis.utils.vllm_utils is not part of Tamis: load the model in a stage of your own", name="tamis.utils.vllm_utils"
)
