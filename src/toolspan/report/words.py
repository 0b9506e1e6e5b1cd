"""What a message says to people, without the client's own tags. Pure."""

import re

from toolspan.model.message import Message
from toolspan.wire.claude_parts import task_notices

_TAG = re.compile(r"<(command-name|command-args|bash-input)>(.*?)</\1>", re.DOTALL)
_ANY_TAG = re.compile(r"</?[a-z][a-z-]*>")


def words(message: Message) -> str:
    """What a message says to people, without the client's own tags."""
    if message.voice == "notification":
        notices = task_notices(message.text)
        told = [f"{n.summary or n.task_id or 'task'} ({n.status or '?'})" for n in notices]
        return "; ".join(told) or message.text
    if message.voice == "command":
        return _command(message.text)
    return message.text.replace("<system-reminder>", "").replace("</system-reminder>", "").strip()


def _command(text: str) -> str:
    tags = dict(_TAG.findall(text))
    if "<local-command-caveat>" in text:
        return ""
    if "bash-input" in tags:
        return f"! {tags['bash-input']}"
    if "command-name" in tags:
        name = "/" + tags["command-name"].strip().removeprefix("/")
        return f"{name} {tags.get('command-args', '')}".strip()
    return _ANY_TAG.sub("", text).strip()
