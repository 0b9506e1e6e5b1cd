"""Questions for the tests of permission, and who answers them."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from toolspan.ids import CallId
from toolspan.model.decision import Allow, Decision
from toolspan.model.span import Call
from toolspan.permission import Permissions
from toolspan.permission.decide import Question, decide
from toolspan.run.shelf import LiveShelf


def question(tool: str, folder: Path, **given: object) -> Question:
    made = Call(
        id=CallId("a"), tool=tool, at=0, requested_at=None, target=None, shelf=LiveShelf(given)
    )
    return Question(call=made, input=given, cwd=folder, project=folder)


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
