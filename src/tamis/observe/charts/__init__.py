"""Charts of a run as text: SVG with a legend in HTML, made by pure functions from plain numbers. One file per chart.

The report inlines them, the dashboard serves them; both use `style.CSS`. Everything a chart shows is treated as
hostile: names are escaped, numbers that are none (NaN, infinite, negative, missing) count as zero.
"""
