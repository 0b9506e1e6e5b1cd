"""AskUserQuestion at the terminal: the model's questions, the person's answers.

In: the input of such a call. Out: the same input with the answers in it, or None when the person
would rather not answer. An answer is the number of an option, several where that is allowed, or
words of one's own.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from toolspan.cli.prompt.text import visible

Line = Callable[[str], Awaitable[str | None]]
"""Asks for a line; None at the end of the input."""
Say = Callable[[str], Awaitable[None]]

TOOL = "AskUserQuestion"


async def answers(given: Mapping[str, object], say: Say, line: Line) -> Mapping[str, object] | None:
    """The input with what the person answers."""
    asked = given.get("questions")
    found: dict[str, str] = {}
    for one in asked if isinstance(asked, list) else []:
        labels = [str(option["label"]) for option in one["options"]]
        await say("\n".join(_lines(one)) + "\n")
        answer = await _answer(labels, line, several=one.get("multiSelect") is True)
        if answer is None:
            return None
        found[str(one["question"])] = answer
    return {**given, "answers": found}


def _lines(one: Mapping[str, object]) -> Sequence[str]:
    options = one["options"]
    lines = ["", f"  {visible(str(one['question']))}"]
    for number, option in enumerate(options if isinstance(options, list) else [], 1):
        lines.append(
            f"    {number} {visible(str(option['label']))}: {visible(str(option['description']))}"
        )
    return lines


async def _answer(labels: Sequence[str], line: Line, *, several: bool) -> str | None:
    how = "numbers" if several else "a number"
    while True:
        said = await line(f"Answer with {how}, or in your own words (empty: no answer): ")
        if not said:
            return None
        words = said.replace(",", " ").split()
        if not all(word.isdecimal() for word in words):
            return said
        chosen = [int(word) for word in words]
        fits = all(1 <= number <= len(labels) for number in chosen)
        if fits and (several or len(chosen) == 1):
            return ", ".join(labels[number - 1] for number in chosen)
