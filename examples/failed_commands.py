"""Print every command that failed, and how long it took.

Usage: python failed_commands.py [FOLDER]
"""

from __future__ import annotations

import sys

import toolspan
from toolspan import BashInput

for transcript in toolspan.transcripts(sys.argv[1] if len(sys.argv) > 1 else None):
    for span in transcript.spans:
        if span.state == "failed" and isinstance(span.input, BashInput):
            print(transcript.session_id, span.duration, span.input.command)
