"""What `toolspan run` is asked for: a prompt, a model, a conversation to go on with.

In: the options, standard input, the variables that name models. Out: each of them, or one clear
sentence why it cannot be had.
"""

import os
import sys
import uuid
from pathlib import Path
from typing import Literal

import msgspec

from toolspan.cli.host import Story
from toolspan.errors import ToolspanError
from toolspan.ids import SessionId
from toolspan.llm.choose import chosen, make_model
from toolspan.llm.model import Model
from toolspan.session.past import find, fork, latest, past

Format = Literal["text", "json", "stream-json"]
ALIASES = frozenset({"sonnet", "opus", "haiku", "fable"})
"""Short names of models; the variables that clients know say what they mean."""
FROM_STDIN = "-"
"""As a prompt: it is read from standard input."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of the conversation."""

    prompt: str | None
    stdin: bool
    word: str | None
    base_url: str | None
    form: Format
    as_json: bool
    resume: str | None
    again: bool
    fork_session: bool
    rewind_to: str | None
    session_id: str | None
    max_turns: int | None
    max_tokens: int
    context_tokens: int
    system_prompt: str | None
    append_system_prompt: str


def prompt_of(wishes: Wishes) -> str | None:
    """What to work on; None when it will be typed.

    Raises:
        ToolspanError: there should be a prompt, and is none.
    """
    piped = sys.stdin is not None and not sys.stdin.isatty()
    text = wishes.prompt
    if text is None and not piped:
        return None
    if text in (None, FROM_STDIN):
        text = _read_stdin()
    elif wishes.stdin:
        text = f"{text}\n\n{_read_stdin()}"
    if not text or not text.strip():
        raise ToolspanError("the prompt is empty: give it with -p, or on standard input")
    return text.strip()


def _read_stdin() -> str:
    if sys.stdin is None:
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def model_of(wishes: Wishes) -> Model:
    """The model that works.

    Raises:
        ToolspanError: none is named, or it cannot be had.
    """
    if wishes.word is None:
        raise ToolspanError(
            "which model? --model anthropic:NAME, openai:NAME or scripted:FILE, or TOOLSPAN_MODEL"
        )
    return make_model(wishes.word, base_url=wishes.base_url)


def other_model(wishes: Wishes, name: str) -> Model | None:
    """A subagent's own model; None for a short name that nobody has said the meaning of.

    Raises:
        ToolspanError: it cannot be had.
    """
    if name in ALIASES:
        meant = os.environ.get(f"ANTHROPIC_DEFAULT_{name.upper()}_MODEL")
        if meant is None:
            return None
        name = f"anthropic:{meant}"
    same = wishes.word is not None and chosen(name).kind == chosen(wishes.word).kind
    return make_model(name, base_url=wishes.base_url if same else None)


def story_of(wishes: Wishes, place: str | None, cwd: Path) -> Story:
    """A new conversation, or one that goes on.

    Raises:
        ToolspanError: there is none that could.
    """
    if wishes.resume is not None and wishes.again:
        raise ToolspanError("--resume and --continue: only one can name the session")
    if wishes.resume is None and not wishes.again:
        if wishes.fork_session or wishes.rewind_to:
            option = "--rewind-to" if wishes.rewind_to else "--fork-session"
            raise ToolspanError(f"{option} needs --resume or --continue")
        return Story(session_id=_uuid(wishes.session_id), transcript=place)
    copies = wishes.fork_session or wishes.rewind_to is not None
    if wishes.session_id is not None and not copies:
        raise ToolspanError("--session-id: a session that goes on keeps its id; add --fork-session")
    if place not in (None, "home"):
        raise ToolspanError(
            "--transcript: --resume and --continue record where the session lies; `none` is all"
            " that can be chosen, or --transcript FILE without them, which goes on with that file"
        )
    path = latest(cwd) if wishes.resume is None else find(wishes.resume, cwd)
    history = past(path, until=wishes.rewind_to)
    if not copies:
        return Story(session_id=path.stem, transcript=path if place else None, history=history)
    name = SessionId(_uuid(wishes.session_id) or str(uuid.uuid4()))
    try:
        copy = fork(path, name, cwd, until=wishes.rewind_to) if place else None
    except OSError as error:
        raise ToolspanError(f"{error.filename}: {error.strerror}") from error
    return Story(session_id=name, transcript=copy, history=history)


def _uuid(text: str | None) -> str | None:
    try:
        return None if text is None else str(uuid.UUID(text))
    except ValueError as error:
        raise ToolspanError(f"--session-id: {text!r} is no UUID") from error
