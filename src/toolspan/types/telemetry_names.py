"""OpenTelemetry attribute names, shared by the live sink and the OTLP export.

`gen_ai.*` follows the semantic conventions for generative AI, which are still in development; all other names start
with `toolspan.`.
"""

from __future__ import annotations

from toolspan.types.session import Tokens
from toolspan.types.state import State

SCOPE = "toolspan"
MAX_NAME_LENGTH = 128
"""The maximum length of a tool name; models may invent longer ones."""

# Spans
CALL_SPAN = "execute_tool {tool}"
PERMISSION_SPAN = "toolspan.permission_wait"
HOOK_SPAN = "toolspan.hook"
EXECUTION_SPAN = "toolspan.execution"

CHAT_SPAN = "chat {model}"

# Attributes of a model request. Input tokens include those read from and written to the cache.
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
COST_ATTRIBUTES = ("gen_ai.usage.cost", "operation.cost")
"""The conventions have no name for the cost; Langfuse reads the first one, Logfire the second."""
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
FINISH_REASONS = "gen_ai.response.finish_reasons"

# Attributes of a call
OPERATION = "gen_ai.operation.name"
OPERATION_VALUE = "execute_tool"
TOOL = "gen_ai.tool.name"
CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.id"
AGENT_NAME = "gen_ai.agent.name"
MESSAGE = "toolspan.message.id"
PARENT_CALL = "toolspan.parent_call.id"
RECOVERS = "toolspan.recovers"
STATE = "toolspan.call.state"
ERROR_TYPE = "error.type"
ERROR_KIND = "toolspan.error.kind"
DENIAL = "toolspan.denial.kind"
EXIT_CODE = "process.exit.code"
INPUT_SIZE = "toolspan.input.size"
RESULT_SIZE = "toolspan.result.size"
TRUNCATED = "toolspan.result.truncated"
BACKGROUND = "toolspan.background"
STOPS_TURN = "toolspan.turn.stopped"

# Attributes of a call's context
DECISION = "toolspan.permission.decision"
DECISION_SOURCE = "toolspan.permission.source"
HOOK_POINT = "toolspan.hook.point"
HOOK_NAME = "toolspan.hook.name"
HOOK_OUTCOME = "toolspan.hook.outcome"

# Span events
PROGRESS = "toolspan.progress"
PROGRESS_KIND = "toolspan.progress.kind"
SANDBOX_DENIED = "toolspan.sandbox_denied"
SANDBOX_TARGETS = "toolspan.sandbox.targets"
SLOW = "toolspan.slow"
EXPECTED_SECONDS = "toolspan.expected_s"
DUPLICATE = "toolspan.duplicate"
BATCH_FINISHED = "toolspan.batch.finished"
BATCH_CALLS = "toolspan.batch.calls"
FAULT = "toolspan.fault"
FAULT_WHERE = "toolspan.fault.where"
WRITE_FAILED = "toolspan.transcript.write_failed"
RECOVERY = "toolspan.recovery.applied"
RECOVERY_POLICY = "toolspan.recovery.policy"
RECOVERY_STEPS = "toolspan.recovery.steps"
RECOVERY_SUCCEEDED = "toolspan.recovery.succeeded"
LIMIT_REACHED = "toolspan.limit.reached"
LIMIT_NAME = "toolspan.limit.name"
LIMIT_VALUE = "toolspan.limit.value"
LIMIT_SPENT = "toolspan.limit.spent"

# Content: only with `content=True`
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
REASON = "toolspan.reason"
HOOK_COMMAND = "toolspan.hook.command"
HOOK_TEXT = "toolspan.hook.text"
HOOK_STDOUT = "toolspan.hook.stdout"
HOOK_STDERR = "toolspan.hook.stderr"
PROGRESS_DATA = "toolspan.progress.data"
PATH = "toolspan.path"

# Metrics
DURATION = "toolspan.call.duration"
DURATION_UNIT = "s"
DURATION_DESCRIPTION = "How long calls took, from the start of the tool or, if it never ran, the request."
DURATION_BUCKETS = (
    0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
OTHER_TOOL = "_OTHER"
"""The metric label for all unknown tools, because models can invent any number of names."""

_ERROR_TYPES: dict[State, str] = {
    "timed_out": "timeout", "cancelled": "cancelled", "interrupted": "interrupted",
}  # fmt: skip


_PROVIDERS = (
    ("claude", "anthropic"), ("gpt", "openai"), ("codex", "openai"), ("o1", "openai"), ("o3", "openai"),
    ("o4", "openai"), ("gemini", "gcp.gemini"), ("grok", "x_ai"), ("mistral", "mistral_ai"), ("deepseek", "deepseek"),
    ("command", "cohere"),
)  # fmt: skip


def provider_of(model: str) -> str | None:
    """Return the provider of a model in the spelling of the conventions, or None if its name does not show it."""
    name = model.rpartition("/")[2]
    return next((provider for beginning, provider in _PROVIDERS if name.startswith(beginning)), None)


def request_attributes(
    model: str, *, reply_model: str | None, reply_id: str | None, tokens: Tokens, cost: float | None
) -> dict[str, str | int | float | None]:
    """Return the attributes of a model request."""
    cached, written = tokens.cache_read_input_tokens, tokens.cache_creation_input_tokens
    return {
        OPERATION: "chat",
        PROVIDER: provider_of(model),
        REQUEST_MODEL: model or None,
        RESPONSE_MODEL: reply_model or None,
        RESPONSE_ID: reply_id,
        INPUT_TOKENS: tokens.input_tokens + cached + written,
        OUTPUT_TOKENS: tokens.output_tokens,
        CACHE_READ_TOKENS: cached or None,
        CACHE_WRITE_TOKENS: written or None,
        **dict.fromkeys(COST_ATTRIBUTES, cost),
    }


def error_type(state: State, error_kind: str | None) -> str | None:
    """Return the `error.type` of an unsuccessful call, or None if the call succeeded."""
    if state == "succeeded":
        return None
    return _ERROR_TYPES.get(state) or error_kind or state
