"""Agents below an agent: which kinds there are, who works, in which copy of the repository.

Start at `subagents.py`.
"""

from toolspan.session.subagents.kinds import Kind, load_kinds
from toolspan.session.subagents.staff import Care, Staff
from toolspan.session.subagents.subagents import Subagents

__all__ = ["Care", "Kind", "Staff", "Subagents", "load_kinds"]
