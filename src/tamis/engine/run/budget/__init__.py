"""What a run may use, is expected to take and took: the budget and the GPUs shared out, the forecast, the record of
settings.
"""
