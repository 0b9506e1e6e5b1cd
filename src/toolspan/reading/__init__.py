"""Read transcripts: files become spans. Start at `transcript.py`."""
