"""Functions that users of NeMo Curator import from `utils`, at the same names. Tamis itself has little use for them."""
