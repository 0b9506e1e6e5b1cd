"""Spans to answers: where time went, what was done about errors, how calls follow each other.

Everything here is a function from values to values; only `spread` starts processes and only the
bodies that a question needs are read again. Start at `timing.py`, `chains.py` or `flows.py`.
"""
