"""Memory: how much there is, who uses it, who may have more, and how to give it back.

`release`, `scope` and `profile` are public. Inside Tamis, import the other modules of this package by name; import from
the modules of `release` and `profile` with `from tamis.memory.release import ...`, because the names
`tamis.memory.release` and `tamis.memory.profile` are the function and the class.
"""

from tamis.memory.profile import profile, scope
from tamis.memory.release import release

__all__ = ["profile", "release", "scope"]
