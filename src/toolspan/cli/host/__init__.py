"""What the commands that run calls have in common: options, settings, a session, its end.

Start at `host.py`.
"""

from toolspan.cli.host.host import Host, HostWishes, Story, host_options, open_host, open_terminal

__all__ = ["Host", "HostWishes", "Story", "host_options", "open_host", "open_terminal"]
