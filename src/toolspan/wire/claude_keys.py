"""Every key of Claude Code's lines that has been seen or documented.

Keys outside these sets are drift: kept, counted, never dropped. Nothing but `doctor` needs them.
"""

from collections.abc import Iterator
from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LINE = _words(
    """
    advisorModel agentColor agentId agentName agentSetting agents aiTitle analytics_disabled
    apiBlockIndex apiErrorStatus apiKeySource api_error_status artifactId atis attachment
    attributionAgent attributionMcpServer attributionMcpTool attributionPlugin attributionSkill
    backup base cacheControl capabilities cause classifierMetaLines claude_code_version commandUuid
    compactMetadata content contextLength costUSD cronKind customTitle cwd data deferred_tool_use
    deliveryId description durationMs duration_api_ms duration_ms effort entrypoint error
    errorDetails errors estimated_tokens estimated_tokens_delta event fallbackModel
    fast_mode_disabled_reason fast_mode_state forkedFrom gitBranch hasOutput
    hasUnknownModelCost hash holdsPersonsWords
    hookAdditionalContext hookCount hookErrors hookInfos hook_event hook_name id imagePasteIds
    interruptedMessageId isAbortedMidStream isApiErrorMessage isCompactSummary isMeta isReplay
    isSidechain isSnapshotUpdate isSynthetic isVisibleInTranscriptOnly is_api_error_message is_error
    keep lastPrompt leafUuid level logicalParentUuid madeBy maxRetries mcpCallNotReadOnly mcpMeta
    mcp_servers memory_paths message messageCount messageId microcompactMetadata mode model
    modelUsage num_turns operation origin originalModel output_style params parentLastUuid
    parentSessionId parentToolUseID parentUuid parent_tool_use_id pendingBackgroundAgentCount
    pendingWorkflowCount perTurnEffort permissionDecision permissionMode permission_denials
    planContent plugins prNumber prRepository prUrl preventContinuation preventedContinuation
    product_feedback_disabled promptCacheRequested promptId promptSource promptSubmitEnding
    querySource queueOrigin queuePriority queueSkipAttachments rate_limit_info reason relocatedCwd
    rendered renderedBesideToolResult renderedInHumanTurn renderedRole repeatsCompactSummary
    replacements requestDigest requestId requestRef request_id requestedModel result
    retractedMessageUuids retryAttempt retryInMs sandboxed serverClassifierRequest sessionId
    sessionKind session_id shape shapeHash skills slash_commands slug snapshot snapshotMessageId
    sourceToolAssistantUUID sourceToolUseID startTime status stopReason stop_reason
    structured_output subtype summary supersedesUuids tag tail task_id teamName terminal_reason
    thinkingDisplay thinkingDurationMs thinkingMetadata time_to_request_ms timestamp todos
    toolDenialKind toolEndsTurn toolInputStreamMs toolUseID toolUseResult tool_name tool_result_meta
    tool_use_id tool_use_result tools totalAPIDuration totalAPIDurationWithoutRetries totalCostUSD
    totalDuration totalLinesAdded totalLinesRemoved totalToolDuration total_cost_usd trackingPath
    truncatedAfterOutput ttft_ms ttft_stream_ms turnCompanion turnOrigin turnPosition type url usage
    userFeedback userType uuid version wireToolInputs worktreeSession elapsed_time_seconds
    """
)
_MESSAGE = _words(
    """
    container content context_management diagnostics id model output_config role service_tier
    stop_details stop_reason stop_sequence type usage
    """
)
_BLOCK = _words(
    """
    cache_control caller citations content data from id index input is_error name server_name
    signature source text thinking title to tool_use_id type
    """
)


def unknown_keys(line: dict[str, Any]) -> Iterator[str]:
    """The keys of a line, its message and its blocks that nobody has described, with their path."""
    yield from (key for key in line if key not in _LINE)
    message = line.get("message")
    if not isinstance(message, dict):
        return
    yield from (f"message.{_numberless(key)}" for key in message if key not in _MESSAGE)
    content = message.get("content")
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict):
                yield from (f"message.content.{key}" for key in block if key not in _BLOCK)


def _numberless(key: str) -> str:
    """A text that was spread into an object has a key per character: one name for all."""
    return "<number>" if key.isdecimal() else key
