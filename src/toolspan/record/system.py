"""Lines of the client itself: that a prompt was refused, that a turn ended.

Pure functions from what happened to the fields of a line, in the client's words.
"""

from dataclasses import dataclass

from toolspan.profile import Profile

Fields = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSummary:
    """What the handlers at the end of a turn did."""

    handlers: tuple[tuple[str, float | None], ...]
    """Each with its duration; none for one that objected."""
    errors: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    stop: str | None = None
    has_output: bool = False
    about: str
    """The id their attachments have."""


def stop_summary(summary: StopSummary) -> Fields:
    """The end of a turn."""
    infos: list[Fields] = []
    for command, duration in summary.handlers:
        took = {} if duration is None else {"durationMs": round(duration)}
        infos.append({"command": command, **took})
    return {
        "subtype": "stop_hook_summary",
        "hookCount": len(infos),
        "hookInfos": infos,
        "hookErrors": list(summary.errors),
        "hookAdditionalContext": list(summary.contexts),
        "preventedContinuation": summary.stop is not None,
        "stopReason": summary.stop or "",
        "hasOutput": summary.has_output,
        "level": "suggestion",
        "toolUseID": summary.about,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPrompt:
    """A prompt that a handler took away."""

    prompt: str
    words: str
    """As the handler's objection reads."""
    reason: str
    """The objection alone."""
    is_stop: bool = False
    """It did not object, it ended the turn."""


def refused_prompt(refused: RefusedPrompt, profile: Profile) -> Fields:
    """A prompt that does not count."""
    content = (
        f"UserPromptSubmit operation blocked by hook:\n{refused.words}\n\n"
        f"Original prompt: {refused.prompt}"
    )
    if refused.is_stop:
        content = f"Operation stopped by hook: {refused.words}"
    told: Fields = {
        "subtype": "informational",
        "content": content,
        "isMeta": False,
        "level": "warning",
    }
    if profile.shape.hooks == "attachments":
        told["preventContinuation"] = True
    if profile.hooks.tells_prompt_ending and not refused.is_stop:
        ending = {"kind": "blocked_by_hook", "reason": refused.reason}
        told["promptSubmitEnding"] = {"ending": ending, "promptKept": False}
    return told
