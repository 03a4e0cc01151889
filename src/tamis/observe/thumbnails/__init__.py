"""Thumbnail grids: small images of what a run about images kept and dropped, for its report.

`choose` finds which ones, from the run directory; `__main__` is a process of its own that decodes them, under limits,
as images are hostile data; `sheet` asks that process and makes a part of the page.
"""
