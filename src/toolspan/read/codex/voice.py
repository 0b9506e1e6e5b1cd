"""Who speaks in a message of a rollout: a person, the model, or the client in a person's name.

Pure. The client puts much into user messages that no user said; newer ones note who made each part,
of older ones the beginning tells.
"""

from toolspan.model.message import Voice
from toolspan.wire.codex import Item
from toolspan.wire.views import text_of

_INJECTED = (
    "<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<INSTRUCTIONS>",
    "<skill>", "<permissions instructions>", "<collaboration_mode>", "<apps_instructions>",
    "<model_switch>", "<personality_spec>", "<plugins_instructions>", "<skills_instructions>",
)  # fmt: skip


def voice_of(item: Item, text: str) -> Voice:
    """The voice of a message that is not the model's."""
    if item.role != "user":
        return "injected"
    start = text.lstrip()
    if start.startswith("<turn_aborted>"):
        return "interrupt"
    if start.startswith("<subagent_notification>"):
        return "notification"
    if start.startswith("<user_shell_command>"):
        return "command"
    kinds = item.passed.content_item_kinds if item.passed else None
    if kinds is not None:
        return "prompt" if any(kind.startswith("user.") for kind in kinds) else "injected"
    return "injected" if start.startswith(_INJECTED) else "prompt"


def prompt_of(item: Item, text: str | None = None) -> str | None:
    """What a person said in a user message; None when it is the client's."""
    words = text_of(item.content) if text is None else text
    return words if words.strip() and voice_of(item, words) == "prompt" else None
