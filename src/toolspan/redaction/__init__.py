"""Recognize secrets and personal data in text and replace them.

Start at `SecretRedactor` in `redact.py`; `secrets.py` and `personal_data.py` find what to replace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.redaction.redact import Redaction, SecretRedactor
    from toolspan.redaction.redactor import NoRedaction, Redactor


__all__ = ["NoRedaction", "Redaction", "Redactor", "SecretRedactor"]

__getattr__ = lazy_exports(
    __name__,
    {"NoRedaction": "redactor", "Redaction": "redact", "Redactor": "redactor", "SecretRedactor": "redact"},
)
