"""What a Codex call was given: its arguments as JSON, and in a few words what it is about.

In: an item that asks for a tool. Out: JSON bytes, or a short text. Arguments come as JSON inside a
string, sometimes broken, sometimes in two strings; free text, as patches are, becomes the `input`
of an object. Nothing here raises, whatever a file contains. Read `arguments_of` first.
"""

import re
import shlex
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolspan.wire import document
from toolspan.wire.codex import NOTHING, Item
from toolspan.wire.views import UNFIT, text_of

_ANYTHING = msgspec.json.Decoder()
_WRAPPERS = 3
"""So many strings around arguments are taken off; nobody has seen more than two."""
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_LIMIT = 160


def arguments_of(item: Item) -> bytes:
    """The input of a call as JSON: an object, unless what the model wrote is none."""
    match item.type:
        case "custom_tool_call":
            return document.encode({"input": text_of(item.input)})
        case "local_shell_call" | "web_search_call":
            return bytes(item.action) or b"{}"
        case "image_generation_call":
            return b"{}"
        case _:
            return _unwrapped(bytes(item.arguments))


def _unwrapped(data: bytes) -> bytes:
    """JSON without the strings around it; as it was written when what is inside is no JSON."""
    found = data
    for _ in range(_WRAPPERS):
        if not found.startswith(b'"'):
            break
        inside = text_of(Raw(found)).encode("utf-8", "surrogatepass").strip()
        if not inside:
            return b"{}"
        if not _decodes(inside):
            return found
        found = inside
    return found or b"{}"


def _decodes(data: bytes) -> bool:
    try:
        document.decode(data)
    except ValueError:
        return False
    return True


class About(Struct, gc=False):
    """The keys of an input that say what a call is about, the most telling first."""

    cmd: Any = None
    command: Any = None
    path: Any = None
    file_path: Any = None
    input: Any = None
    query: Any = None
    q: Any = None
    url: Any = None
    pattern: Any = None
    uri: Any = None
    message: Any = None
    question: Any = None
    chars: Any = None
    explanation: Any = None
    target: Any = None
    targets: Any = None
    objective: Any = None
    prompt: Any = None
    name: Any = None
    queries: Any = None
    questions: Any = None
    plan: Any = None
    session_id: Any = None
    """Of the process that a `write_stdin` speaks to."""
    cell_id: Any = None
    """Of the script that a `wait` waits for."""

    @property
    def process(self) -> str | None:
        """The process or script that the call goes on with."""
        found = self.session_id if self.session_id is not None else self.cell_id
        return str(found) if isinstance(found, int | str) and not isinstance(found, bool) else None

    def words(self) -> str | None:
        """What the call is about, shortened: command, path, question, address."""
        likely = self.cmd if self.cmd is not None else self.command
        if likely:
            words = command_line(likely)
            return words[:_LIMIT] if words else None
        for value in msgspec.structs.astuple(self):
            words = _said(value)
            if words:
                return words[:_LIMIT]
        return f"process {self.process}" if self.process is not None else None


_ABOUT = msgspec.json.Decoder(About)


def about(item: Item) -> About:
    """What a call is about; empty when that cannot be read."""
    data = arguments_of(item)
    try:
        return _ABOUT.decode(data)
    except UNFIT:
        return About()


def patched(text: str) -> str | None:
    """The first file that a patch is about."""
    found = _PATCHED.search(text)
    return found[1].strip() if found else None


def command_line(command: object) -> str | None:
    """A command as a person would type it: a shell around it is taken off."""
    if isinstance(command, str):
        return command
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return None
    match command:
        case [_, "-lc" | "-c" | "-Command" | "/c", line]:
            return str(line)
        case _:
            return shlex.join(command)


def command_of(raw: Raw) -> str | None:
    """The command of an event, as a person would type it."""
    if raw == NOTHING:
        return None
    try:
        return command_line(_ANYTHING.decode(raw))
    except UNFIT:
        return None


def _said(value: object) -> str | None:
    if isinstance(value, str):
        return patched(value) or value.strip() or None
    if isinstance(value, list) and value:
        first = value[0]
        if isinstance(first, dict):
            first = first.get("step") or first.get("question")
        return first if isinstance(first, str) else None
    return None
