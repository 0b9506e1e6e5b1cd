"""How calls follow each other: what was done about errors, what ran together or could have.

Start at `flows.py`; `chains.py` has the recoveries.
"""
