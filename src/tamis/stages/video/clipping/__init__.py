"""Where clips begin and end, how they are written, and which of their frames are looked at."""
