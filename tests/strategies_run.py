"""Schedules: calls with all that can happen to them, in an order that a generator chose.

In: a source of randomness (hypothesis's, which shrinks, or a seed). Out: plain values; what plays
them is `tests/runtime/schedules.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from hypothesis import strategies as st

ToolName = Literal["safe", "unsafe", "asks", "block", "limited", "Bash", "off", "missing"]
Input = Literal["good", "wrong", "extra", "unparsed", "surrogate"]
Veto = Literal["none", "refuses", "tells", "crashes", "waits", "ignores"]
Flow = Literal["at once", "gate", "news", "hang", "cleans up", "swallows", "turns", "ignores", "never"]
"""`swallows` shields itself until its gate opens, `ignores` catches every cancellation until then,
`never` does so for ever."""
ENDLESS: tuple[Flow, ...] = ("hang", "cleans up", "turns", "never")
"""Plans that end only when they are cancelled, if at all."""
Outcome = Literal[
    "text", "blank", "blocks", "picture", "surrogates", "nan", "huge", "subclass", "deep",
    "nothing", "number", "bytes", "bad block", "bad companion", "flagged", "tool error",
    "odd tool error", "value error", "group", "exit", "stray cancel", "mute error", "failure",
    "odd failure", "long failure", "timeout error", "bad answer",
]  # fmt: skip
Before = Literal[
    "none", "allows", "denies", "asks", "crashes", "garbage", "input", "bad input", "odd input",
    "stops", "tells", "odd tells", "waits", "stray cancel", "denies and stops", "cancels",
    "ignores",
]  # fmt: skip
After = Literal[
    "none", "crashes", "garbage", "replaces", "replaces badly", "tells", "odd tells", "stops",
    "waits", "stray cancel", "ignores",
]  # fmt: skip
Policy = Literal[
    "none", "allows", "denies", "ends all", "asks", "crashes", "garbage", "input", "bad input",
    "waits", "stray cancel", "ignores",
]  # fmt: skip
Approver = Literal["allows", "denies", "words", "crashes", "garbage", "waits", "waits, denies", "ignores"]
Silence = Literal["none", "waits", "stray cancel", "ignores"]
"""Alternatives to an answer, for hooks, policies and approvers."""
Modify = Literal["none", "marks", "crashes", "garbage"]
Partial = Literal["none", "some", "crashes", "garbage"]
Act = Literal["add", "again", "release", "cancel", "cancel all", "take", "wait", "host"]
SinkKind = Literal["crashes", "slow", "crashes directly", "cancels itself"]
Host = Literal["none", "scope", "task"]

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """The plan of one call."""

    tool: ToolName = "safe"
    input: Input = "good"
    cut: bool = False
    veto: Veto = "none"
    flow: Flow = "at once"
    outcome: Outcome = "text"
    before: Before = "none"
    after: After = "none"
    policy: Policy = "none"
    approver: Approver = "allows"
    modify: Modify = "none"
    partial: Partial = "none"


@dataclass(frozen=True)
class Step:
    """One thing the host does, and how often it lets others run afterwards."""

    act: Act
    call: int = 0
    breaths: int = 1


@dataclass(frozen=True)
class Schedule:
    """The actions of a host with a batch."""

    plans: tuple[Plan, ...]
    steps: tuple[Step, ...]
    hooks: int = 0
    """How many handlers stand at each point."""
    policies: bool = False
    sinks: tuple[SinkKind, ...] = ()
    siblings: Literal["independent", "cancel_on_shell_error"] = "independent"
    cap: int | None = None
    host: Host = "none"
    drains: bool = False
    """The host waits in `drain` after all calls are added; another task does the rest."""
    in_task: bool = False
    """The host's own task runs what never waits, as `Runner.run` does it."""


def make_schedule(chance: random.Random) -> Schedule:
    """A schedule; most of what it holds is ordinary, or nothing would ever come to run."""
    plans = tuple(_plan(chance) for _ in range(chance.randint(1, 6)))
    host: Host = chance.choice(("scope", "task")) if chance.random() < 0.2 else "none"
    sinks: tuple[SinkKind, ...] = get_args(SinkKind)
    return Schedule(
        plans=plans,
        steps=_steps(chance, len(plans), host),
        hooks=chance.choice((0, 0, 1, 2)),
        policies=chance.random() < 0.5,
        sinks=tuple(one for one in sinks if chance.random() < 0.1),
        siblings="cancel_on_shell_error" if chance.random() < 0.2 else "independent",
        cap=chance.choice((None, None, 1, 2)),
        host=host,
        drains=chance.random() < 0.5,
        in_task=chance.random() < 0.7,
    )


def _plan(chance: random.Random) -> Plan:
    tools: Sequence[ToolName] = (
        "safe", "safe", "safe", "unsafe", "unsafe", "asks", "block", "limited", "Bash",
        "off", "missing",
    )  # fmt: skip
    tool = chance.choice(tools)
    flow = _often(chance, "at once", get_args(Flow), 0.3)
    if tool == "limited":
        flow = _often(chance, "hang", ("swallows", "ignores", "never"), 0.7)
    elif tool == "block" and flow in ENDLESS:
        flow = "gate"  # nothing else would ever end it
    return Plan(
        tool=tool,
        input=_often(chance, "good", get_args(Input), 0.9),
        cut=chance.random() < 0.03,
        veto=_often(chance, "none", get_args(Veto), 0.9),
        flow=flow,
        outcome=_often(chance, "text", get_args(Outcome), 0.4),
        before=_often(chance, "none", get_args(Before), 0.6),
        after=_often(chance, "none", get_args(After), 0.6),
        policy=_often(chance, "none", get_args(Policy), 0.6),
        approver=chance.choice(get_args(Approver)),
        modify=chance.choice(get_args(Modify)),
        partial=chance.choice(get_args(Partial)),
    )


def _often(chance: random.Random, usual: T, others: Sequence[T], share: float) -> T:
    return usual if chance.random() < share else chance.choice(others)


def _steps(chance: random.Random, calls: int, host: Host) -> tuple[Step, ...]:
    """Each call is added once, in order; other things happen in between."""
    steps: list[Step] = []
    for call in range(calls):
        steps.append(Step("add", call, chance.choice((0, 0, 1, 3))))
        steps += [_other(chance, call + 1) for _ in range(chance.choice((0, 0, 1, 2)))]
    steps += [_other(chance, calls) for _ in range(chance.randint(0, 5))]
    if host != "none":
        steps.insert(chance.randint(1, len(steps)), Step("host"))
    return tuple(steps)


def _other(chance: random.Random, calls: int) -> Step:
    acts: Sequence[Act] = (
        "release", "release", "release", "take", "wait", "again", "cancel", "cancel all",
    )  # fmt: skip
    return Step(chance.choice(acts), chance.randrange(calls), chance.choice((0, 1, 2, 5)))


schedules = st.randoms(use_true_random=False).map(make_schedule)
