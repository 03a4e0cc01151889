"""Sphinx configuration: `make docs` builds the site from these pages with warnings as errors."""

project = "Tamis"
author = "The Tamis authors"
html_title = "Tamis"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
nitpicky = True
html_theme = "furo"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
suppress_warnings = ["misc.highlighting_failure"]  # JSON and YAML with ${...} in them
