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


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A conversation that goes on from a summary of itself."""

    summary: str
    trigger: str
    """`auto` or `manual`."""
    tokens_before: int
    duration_ms: float


def boundary(compacted: Compacted, last: str | None) -> Fields:
    """Where the conversation was cut; `last` is the line before."""
    return {
        "logicalParentUuid": last,
        "subtype": "compact_boundary",
        "content": "Conversation compacted",
        "isMeta": False,
        "level": "info",
        "compactMetadata": {
            "trigger": compacted.trigger,
            "preTokens": compacted.tokens_before,
            "durationMs": round(compacted.duration_ms),
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A request to the model that failed."""

    message: str
    kind: str
    status: int | None = None
    attempt: int = 0
    """Which retry follows; 0 when none does."""
    of: int = 0
    wait_s: float = 0.0


def retried(trouble: Trouble) -> Fields:
    """A request that is made again."""
    status = {} if trouble.status is None else {"status": trouble.status}
    return {
        "subtype": "api_error",
        "level": "error",
        "error": {**status, "message": trouble.message, "type": trouble.kind},
        "retryInMs": round(trouble.wait_s * 1000),
        "retryAttempt": trouble.attempt,
        "maxRetries": trouble.of,
    }


def given_up(trouble: Trouble) -> Fields:
    """What stands in the place of a reply that there is none of."""
    status = {} if trouble.status is None else {"apiErrorStatus": trouble.status}
    return {"error": trouble.kind, "isApiErrorMessage": True, **status}
