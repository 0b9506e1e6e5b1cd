"""The built-in tools, one file or folder each.

`coding_tools()` gives those that a client version offers. A tool is a value made for a profile;
none knows another.
"""

from toolspan.builtin.bash import bash_tool
from toolspan.builtin.edit import edit_tool
from toolspan.builtin.read import read_tool
from toolspan.builtin.write import write_tool
from toolspan.profile import Profile
from toolspan.profile import profile as named
from toolspan.run.tool import Tool

__all__ = ["bash_tool", "coding_tools", "edit_tool", "read_tool", "write_tool"]

_MAKERS = (bash_tool, edit_tool, read_tool, write_tool)


def coding_tools(profile: Profile | None = None) -> tuple[Tool, ...]:
    """The tools a client version offers; without a profile, those of the newest."""
    client = named() if profile is None else profile
    made = (make(client) for make in _MAKERS)
    return tuple(tool for tool in made if tool.name in client.offer.tools)
