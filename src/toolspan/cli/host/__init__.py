"""Options, settings and session setup shared by the commands that run calls. Start at `host.py`."""

from __future__ import annotations

from toolspan.cli.host.host import Host, HostOptions, SessionSource, host_options, open_host, open_terminal

__all__ = ["Host", "HostOptions", "SessionSource", "host_options", "open_host", "open_terminal"]
