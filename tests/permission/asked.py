"""Questions for the tests of permission, and who answers them."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.run.made import asked_for
from toolspan.model.decision import Allow, Decision
from toolspan.permission import Permissions
from toolspan.permission.decide import Question, decide


def question(tool: str, folder: Path, **given: object) -> Question:
    return Question(call=asked_for(tool, given), input=given, cwd=folder, project=folder)


def line(command: str, folder: Path) -> Question:
    return question("Bash", folder, command=command)


def answered(work: Coroutine[Any, Any, Decision | None]) -> Decision | None:
    """What comes of a decision that waits for nobody."""
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    found: Decision | None = ended.value.value
    return found


def decided(permissions: Permissions, asked: Question) -> Decision:
    """What rules, guard and mode say together."""
    ruled = answered(decide(permissions.policies, asked))
    return ruled or answered(decide([permissions.fallback], asked)) or Allow()
