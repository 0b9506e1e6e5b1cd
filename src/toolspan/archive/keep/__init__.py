"""A kept archive: a copy of all sessions that survives their deletion by the client. Start at `KeptArchive`."""

from __future__ import annotations
