"""What agents below an agent are made of, and how many there may be at once.

In: the kinds that there are, a way to other models, limits. Out: a `Staff`, shared by all agents
of a session, however deep. Knows nothing of sessions. Read `Staff` first.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from toolspan.errors import ToolError, ToolspanError
from toolspan.llm.model import Model
from toolspan.session.subagents.kinds import GENERAL_KIND, Kind
from toolspan.session.system_words import place_words, system_words

FindModel = Callable[[str], Model | None]
"""From a model's name, short or not, to the model; None where the agent above has the right one."""

_ERRAND = """\
Another agent has given you a piece of work. Nobody answers questions: decide, and say what you
decided. Your last message is your report and all that is read of you: what you found or did, with
the paths and lines it rests on, and what is open."""
_STRICT = ("bypassPermissions", "acceptEdits", "default", "dontAsk", "plan")
"""The permission modes, each stricter than the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """How far agents may go."""

    at_once: int = 20
    """How many may work at the same time, at all depths together."""
    seconds: float | None = None
    """How long one may work."""
    depth: int | None = None
    """How far below the main conversation they may be; None: as the client version has it."""


def _no_other(_name: str) -> Model | None:
    return None


class Staff:
    """The agents that work can be given to."""

    def __init__(
        self,
        kinds: Iterable[Kind] = (),
        *,
        find_model: FindModel = _no_other,
        care: Care | None = None,
    ) -> None:
        """`kinds` beside the general one, which one of them may take the place of."""
        named = {kind.name: kind for kind in kinds}
        self.kinds: Mapping[str, Kind] = {GENERAL_KIND.name: GENERAL_KIND, **named}
        self.care = care or Care()
        self._find_model = find_model
        self._models: dict[str, Model] = {}
        self._working = 0

    def take_place(self) -> None:
        """One more agent works.

        Raises:
            ToolError: there are too many.
        """
        if self._working >= self.care.at_once:
            raise ToolError(
                f"Concurrent subagent limit reached. {self._working} agents work already: wait"
                " for one to end"
            )
        self._working += 1

    def give_place(self) -> None:
        """An agent does not work any more."""
        self._working -= 1

    def model(self, name: str | None, above: Model) -> Model:
        """The model of this name; the one above where there is no other.

        Raises:
            ToolError: it cannot be had.
        """
        if name is None or name in ("inherit", above.name):
            return above
        if name not in self._models:
            try:
                found = self._find_model(name)
            except ToolspanError as problem:
                raise ToolError(f"model {name}: {problem}", kind="invalid_input") from problem
            self._models[name] = found or above
        return self._models[name]

    async def close(self) -> None:
        """Let the connections of other models go."""
        for model in set(self._models.values()):
            await model.close()

    def listing(self) -> str:
        """The agents, for a model."""
        lines = [f"- {kind.name}: {kind.description}{_tools(kind)}" for kind in self.kinds.values()]
        return "\n".join(("The agents:", *lines))


def _tools(kind: Kind) -> str:
    return "" if kind.tools is None else f" (has {', '.join(kind.tools)})"


def words_for(kind: Kind, cwd: Path) -> str:
    """What an agent is told before anything else."""
    if not kind.words:
        return system_words(cwd, more=_ERRAND)
    return "\n\n".join((kind.words, _ERRAND, place_words(cwd)))


def mode_below(kind: Kind, above: str) -> str:
    """The mode of an agent: its own, unless somebody has chosen a stricter one above."""
    wanted = kind.permission_mode
    if wanted is None or above not in _STRICT or wanted not in _STRICT:
        return above
    is_stricter = _STRICT.index(wanted) > _STRICT.index(above)
    return wanted if is_stricter or above == "default" else above


def new_agent_id(digits: int) -> str:
    """A name that no agent has yet, as long as the client's."""
    letters = secrets.token_hex(digits)
    return f"a{letters[: digits - 1]}"
