"""Where time went, in parts that add up. Start at `timing.py`."""
