"""Models: who gives the replies.

`model.py` has the protocol and what streams; `anthropic_api.py` and `openai_api.py` talk to
servers, `scripted.py` follows a script, `patient.py` tries again, `choose.py` finds one by its
name.
"""

from __future__ import annotations
