"""The shell tool.

Start at `tool.py` (one command's way), then `launch.py` (how it is started) and `told.py` (what is
told of it).
"""

from toolspan.builtin.bash.tool import bash_tool

__all__ = ["bash_tool"]
