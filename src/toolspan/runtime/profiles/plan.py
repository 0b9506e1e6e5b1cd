"""Plans and questions: what differs between client versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

PlanSource = Literal["file", "input", "needed_file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanValues:
    """Texts and policies of AskUserQuestion, EnterPlanMode and ExitPlanMode of one client."""

    enter_question: str | None = None
    """What a person is asked before planning begins; None: nobody is asked."""
    exit_question: str = "Exit plan mode?"
    answer_question: str = "Answer questions?"
    answered: str = "Your questions have been answered: {answers}. You can now continue with these answers in mind."
    unanswered: str = "The user did not answer the questions."
    """Empty: as `answered`, with no answers."""
    source: PlanSource = "file"
    """Where the plan is: in its file if there is one, in the input, or in a file that has to be
    there."""
    records_edited: bool = False
    """The record says that the plan is not the one in the file."""


_V2_1_325 = PlanValues()
_V2_1_197 = replace(_V2_1_325, source="input", records_edited=True)
_V2_1_80 = replace(
    _V2_1_197,
    answered=("User has answered your questions: {answers}. You can now continue with the user's answers in mind."),
    unanswered="",
    records_edited=False,
)
_V2_0_65 = replace(_V2_1_80, enter_question="Enter plan mode?", source="needed_file")

PLANS: Mapping[str, PlanValues] = {
    "seed": replace(_V2_0_65, source="input"),
    "2.0.65": _V2_0_65,
    "2.1.80": _V2_1_80,
    "2.1.197": _V2_1_197,
    "2.1.325": _V2_1_325,
}
