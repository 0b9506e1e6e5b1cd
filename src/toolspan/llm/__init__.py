"""Models: who gives the replies. So far the one that follows a script; see `scripted.py`."""
