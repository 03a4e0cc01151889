"""Video: what a file says of itself, its frames one by one, its motion, and parts of it as files.

Paths and numbers in, numbers and files out.

Nothing here holds more than a few decoded frames. Needs the extra `video` (PyAV), which is imported when a video is
opened.
"""
