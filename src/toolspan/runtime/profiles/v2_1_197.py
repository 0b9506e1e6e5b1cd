"""Claude Code 2.1.197, as differences from 2.1.80."""

from __future__ import annotations

from dataclasses import replace

from toolspan.runtime.profiles.base import BACKGROUND_STARTED, READ_OUTPUT_HINT, REJECTED_AND_STOP, HookValues
from toolspan.runtime.profiles.v2_1_80 import V2_1_80 as BASE

INTERACTIVE_TOOLS = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
TASK_LIST_TOOLS = frozenset({"TaskCreate", "TaskGet", "TaskList", "TaskUpdate"})

V2_1_197 = replace(
    BASE,
    name="2.1.197",
    availability=replace(
        BASE.availability,
        tools=(BASE.availability.tools - {"Glob", "Grep", "TodoWrite"} - INTERACTIVE_TOOLS)
        | {"ReportFindings", "ScheduleWakeup", "SendMessage", "Workflow"}
        | TASK_LIST_TOOLS,
        optional_tools=frozenset({"Glob", "Grep", "TodoWrite", "ListMcpResourcesTool", "ReadMcpResourceTool"})
        | INTERACTIVE_TOOLS,
        interactive_tools=INTERACTIVE_TOOLS,
        aliases={"KillShell": "TaskStop", "KillBash": "TaskStop", "BashOutput": "TaskOutput", "Task": "Agent"},
        max_concurrent=None,
        starts_while_streaming=True,
    ),
    refusals=replace(
        BASE.refusals,
        plan_mode="Cannot write to {path} while in plan mode.",
        disabled_tool=". {name} exists but is not enabled in this context.",
        interrupted=REJECTED_AND_STOP,
        interrupted_keeps_output=False,
        cancelled=REJECTED_AND_STOP,
    ),
    issues=replace(BASE.issues, reports_unparsed=True),
    files=replace(
        BASE.files,
        numbering="tab",
        odd_range="dropped",
        whole_numbers=True,
        sorts_names=False,
        reports_unchanged=True,
        checks_images=True,
        reports_current=True,
        records_user_modified=True,
    ),
    search=replace(
        BASE.search,
        relative_names=True,
        counts_matches=True,
        default_limit=250,
        zero_is_all=True,
        reports_whole_range=False,
        grep_inputs=frozenset({"context", "-o"}),
    ),
    notebook=replace(BASE.notebook, read_first=True, records_old_source=True),
    todo=replace(BASE.todo, records_nudge=False),
    shell=replace(
        BASE.shell,
        rejects_control_characters=True,
        closes_stdin=False,
        killed_at_timeout=frozenset({"sleep"}),
        started_text=BACKGROUND_STARTED + READ_OUTPUT_HINT,
        records_auto_move=False,
        environment={
            **BASE.shell.environment,
            "CLAUDE_CODE_CHILD_SESSION": "1",
            "AI_AGENT": "claude-code_2-1-197_agent",
        },
        exports_session_id=True,
    ),
    tasks=replace(BASE.tasks, notice_tail="", old_input=True),
    plan=replace(
        BASE.plan,
        answered="Your questions have been answered: {answers}. You can now continue with these answers in mind.",
        unanswered="The user did not answer the questions.",
        records_edited=True,
    ),
    hooks=replace(
        BASE.hooks,
        points=BASE.hooks.points
        | {"CwdChanged", "FileChanged", "TaskCreated", "PermissionDenied", "UserPromptExpansion", "PostToolBatch",
           "MessageDisplay"},
        unknown_drops_all=False,
        exact_matcher=HookValues().exact_matcher,
        separators="|,",
        omitted_fields=frozenset({"mcp_server"}),
        effort="high",
        environment={"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "sdk-cli", "CLAUDE_CODE_CHILD_SESSION": "1"},
        exports_session_id=True,
        exit_2_wins=True,
        updates_output=True,
        honours_ask=True,
        honours_defer=True,
        uses_last_reason=False,
        max_stop_blocks=8,
    ),
    shape=replace(
        BASE.shape,
        version="2.1.197",
        prompt_source=True,
        times_rise=False,
        hooks="attachments",
        final_stop=True,
        last_prompt="leaf",
    ),
    mcp=replace(BASE.mcp, joins_errors=True, idle_remote=300.0, idle_local=1_800.0, approval_interrupts=True),
    agents=replace(
        BASE.agents,
        models=(*BASE.agents.models, "fable"),
        resumes=False,
        depth=3,
        token_word="subagent_tokens",
        reports_kind=True,
        completion_word="finished",
        has_note=True,
        notice_tail="",
        records_call=True,
    ),
)  # fmt: skip
