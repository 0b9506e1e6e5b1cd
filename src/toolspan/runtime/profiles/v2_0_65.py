"""Claude Code 2.0.65, the oldest version, as differences from the defaults."""

from __future__ import annotations

from toolspan.runtime.profiles import base
from toolspan.runtime.profiles.messages import COMMAND_STARTED, STOP, Messages

V2_0_65 = base.Profile(
    name="2.0.65",
    messages=Messages(
        dont_ask="Permission to use {name} has been auto-denied in dontAsk mode.",
        hook_denied="{reason}",
        hook_denied_silently="Hook PreToolUse:{name} denied this tool",
        cancelled="The user doesn't want to take this action right now." + STOP,
        interrupted="[Request interrupted by user for tool use]",
        no_output="",
        missing="File does not exist.",
        read_missing="File does not exist.",
        missing_elsewhere=" Current working directory: {cwd}",
        unreadable_folder="EISDIR: illegal operation on a directory, read",
        device="Cannot read '{path}': this device file would block or produce infinite output.",
        empty=(
            "Warning: the file exists but is shorter than the provided offset ({offset}). The file has {lines} lines."
        ),
        null_path="Error calling tool ({tool}): Path contains null bytes",
        all_replaced=(
            "The file {path} has been updated. All occurrences of '{old}' were successfully replaced with '{new}'."
        ),
        no_folder="Directory does not exist: {path}",
        no_path="Path does not exist: {path}",
        command_started=COMMAND_STARTED,
        command_moved=COMMAND_STARTED,
        answered="User has answered your questions: {answers}. You can now continue with the user's answers in mind.",
        unanswered="User has answered your questions: . You can now continue with the user's answers in mind.",
        undotted_host="Invalid URL",
        agent_ended="completed",
        mcp_error="MCP error {code}: {message}",
        mcp_timed_out="MCP error -32001: Request timed out",
    ),
    availability=base.ToolAvailability(
        tools=frozenset({
            "Bash", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep", "KillShell", "NotebookEdit", "Read",
            "Skill", "SlashCommand", "Task", "TaskOutput", "TodoWrite", "WebFetch", "WebSearch", "Write",
        }),
        max_concurrent=10, starts_while_streaming=False, checks_skill_args=False, suggests_skills=False,
        coerces=False, explains_unknown=False, fetch_has_offset=False, asks_about_all_skills=True,
    ),
    refusals=base.Refusals(
        precise_questions=False, read_rules_bind_changes=False, star_rules=False,
        free_redirects=True,
        suspicious_path=r"..:|~\d|[. ]$|\.(?:con|prn|aux|nul|com\d|lpt\d)$|(?:^|/)\.{3,}(?:/|$)",
    ),
    issues=base.IssueStyle(validator="zod 3"),
    files=base.FileValues(
        numbering="arrow", newer_inputs=False, loose_ranges=True, detects_encodings=False, checks_media=False,
        refuses_links=False, raw_records=True, free_models=(), default_model_is_free=False, expands_home=False,
        sorts_names=True, names_slash=False, binary_suffixes=base.SUFFIXES_2_0, refuses_process_files=False,
        reports_path_errors=False, checks_early=True, snippet=True, keeps_curly=False,
        keeps_markdown_blanks=False, recovers_stale=False, record_limit=None, replaces_links=True,
        blank_needs_read=False, writes_old_newlines=True, shell_views=False, remembered_files=10,
        folder_first=False,
    ),
    search=base.SearchValues(
        checks_early=True, newer_inputs=False, reports_errors=False, relative_names=False, reports_totals=False,
        checks_range=False, output_limit=20_000, strips_returns=False, default_limit=None,
    ),
    notebook=base.NotebookValues(checks_first=False, full_records=False),
    shell=base.ShellValues(
        marks_errors=True, merges_streams=False, closes_stdin=True, interrupted_keeps_output=True,
        overflow="lines", expects_output=False, killed_at_timeout=frozenset(), tenths=True,
        moved_keeps_output=False,
        environment={"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "sdk-cli", "GIT_EDITOR": "true"},
        error_slack=0, exports_session_id=False, rejects_control_characters=False, records_edits=False,
    ),
    tasks=base.TaskValues(
        notifies=False, forgets_ended=False, loose_output=True, has_exit_line=False, stores_todos=True,
        asks_to_plan=True, plan_source="needed_file",
    ),
    hooks=base.HookValues(
        points=frozenset({
            "PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "Notification",
            "UserPromptSubmit", "SessionStart", "SessionEnd", "Stop", "SubagentStart", "SubagentStop", "PreCompact",
        }),
        unknown_drops_all=True, comma_matchers=False, explains_rewrite=False, timeout=60.0,
        omitted_fields=frozenset({
            "prompt_id", "effort", "duration_ms", "mcp_server", "background_tasks", "session_crons",
            "last_assistant_message", "agent_type",
        }),
        effort=None,
        environment={"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"},
        exports_session_id=False, asks_permission_headless=False, exit_2_wins=False, exit_2_names_tool=True,
        input_needs_decision=True, updates_output=False, expands_home=False, honours_ask=False,
        allow_is_final=True, uses_last_reason=True, max_stop_blocks=None, summarizes_stop=False,
    ),
    shape=base.TranscriptShape(
        version="2.0.65", parent_is_own_call=False, envelope_last=False, entrypoint=False, no_branch="",
        prompt_ids=False, prompt_source=False, turn_position=False, companions_aside=True, hooks="none",
        rendered=False, final_stop=False, blocks_numbered=False, decisions=False, turn_companions=False,
        times_rise=True, last_prompt="none", agents="beside", agent_digits=7,
    ),
    mcp=base.McpValues(
        restarts=False, joins_errors=False, saves_binary=False, keeps_other_blocks=False,
        records_text_metadata=False, names_images=False, inline_limit=None, token_limit=None,
        checks_images=False, meta=frozenset(), marks_writers=False, description_limit=2_048, idle_remote=None,
        idle_local=None, strict_approval=True,
    ),
    agents=base.AgentValues(
        name="Task",
        models=("sonnet", "opus", "haiku"),
        newer_inputs=False, framed=False, records_request=False, in_background=False, depth=1,
    ),
)  # fmt: skip
