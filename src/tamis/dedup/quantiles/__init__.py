"""Choosing documents by scores: buckets between weighted quantiles, and the best documents up to a limit."""
