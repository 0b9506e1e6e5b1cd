"""The decorator that names an observed behaviour, or an intended difference, that a test shows.

`@requirement("bash.timeout-kills")` names an id of requirements.toml; a test may name several by
stacking. `test_requirements.py` reads the decorators from the source, so the id is a literal.
"""

from __future__ import annotations

import pytest


def requirement(identifier: str) -> pytest.MarkDecorator:
    """Mark a test as a proof of this requirement."""
    return pytest.mark.requirement(identifier)
