"""Words in calls and messages, found without an index. Start at `find.py`."""
