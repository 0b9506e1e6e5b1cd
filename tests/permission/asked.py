"""Questions for the tests of permission, and who answers them."""

from pathlib import Path

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


def decided(permissions: Permissions, asked: Question) -> Decision:
    """What rules, guard and mode say together."""
    for policies in (permissions.policies, [permissions.fallback]):
        try:
            decide(policies, asked).send(None)
        except StopIteration as ended:
            decision: Decision | None = ended.value
            if decision is not None:
                return decision
    return Allow()
