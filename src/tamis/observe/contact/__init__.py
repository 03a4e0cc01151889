"""Contact sheets: small pictures of what a run about pictures kept and dropped, for its report.

`choose` finds which ones, from the run directory; `__main__` is a process of its own that decodes them, under limits, as pictures are hostile
data; `sheet` asks that process and makes a part of the page.
"""
