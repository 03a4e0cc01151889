"""Parts of benchmarks/gpu.py: what is run (jobs), what it runs on (corpus, model_folders), how (end_to_end, model_only)
and the page.
"""
