"""Print the diff of every edit in a transcript.

Usage: python changed_files.py FILE
"""

from __future__ import annotations

import sys

import toolspan
from toolspan import diffs, results

if len(sys.argv) != 2:
    sys.exit("usage: python changed_files.py FILE")

for span in toolspan.read(sys.argv[1]).spans:
    change = span.result.structured if span.result else None
    if isinstance(change, results.EditResult) and not diffs.problems(change.structured_patch):
        print(diffs.unified(change.structured_patch, change.file_path))
