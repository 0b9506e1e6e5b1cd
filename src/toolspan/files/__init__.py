"""Read, decode and replace files safely: bounded reads, exact text, all-or-nothing writes.

Blocking functions that know nothing of tools or calls; problems are raised as `ToolError` with the text a client
shows. Start at `safe_read.py`, then `text.py` and `atomic_replace.py`.
"""
