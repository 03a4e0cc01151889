"""Parts of benchmarks/gpu.py: the jobs, their input (corpus, model_folders), how they run, and the page."""
