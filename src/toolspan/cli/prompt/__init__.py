"""Prompts at the terminal: permission requests and AskUserQuestion. Start at `approver.py`."""

from __future__ import annotations
