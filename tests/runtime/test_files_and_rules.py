"""Files that rules deny, links, and the messages about them, as the client versions do it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.runtime.stage import call
from toolspan.runtime.hooks.callbacks import HookCallback
from toolspan.runtime.permissions.decide import Policy
from toolspan.runtime.permissions.modes import mode_policy
from toolspan.runtime.permissions.rules import Rules
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.tools import coding_tools
from toolspan.types.decision import Deny

pytestmark = pytest.mark.anyio
