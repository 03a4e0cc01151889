"""Memory: how much there is, who uses it, who may have more, and how to give it back.

`release` and `scope` are public. Inside Tamis, import the other modules of this room by name; import from the module
behind `release` with `from tamis.memory.release import ...`, because the name `tamis.memory.release` is the function.
"""

from tamis.memory.release import release, scope

__all__ = ["release", "scope"]
