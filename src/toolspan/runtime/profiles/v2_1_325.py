"""Claude Code 2.1.325, the newest version and the default, as differences from 2.1.197."""

from __future__ import annotations

from dataclasses import replace

from toolspan.runtime.profiles.base import READ_OUTPUT_HINT, FetchValues, FileValues, NotebookValues, Refusals
from toolspan.runtime.profiles.v2_1_197 import TASK_LIST_TOOLS
from toolspan.runtime.profiles.v2_1_197 import V2_1_197 as BASE

V2_1_325 = replace(
    BASE,
    name="2.1.325",
    availability=replace(
        BASE.availability,
        tools=(BASE.availability.tools - {"TaskOutput"} - TASK_LIST_TOOLS) | {"ListAgents", "Monitor", "ToolSearch"},
        optional_tools=BASE.availability.optional_tools | TASK_LIST_TOOLS,
        task_list_tools=TASK_LIST_TOOLS,
        suggests_skills=True,
        models_without_tasks=("claude-opus-5",),
        deferred=frozenset({
            "CronCreate", "CronDelete", "CronList", "EnterWorktree", "ExitWorktree", "Monitor", "NotebookEdit",
            "SendMessage", "TaskStop", "WebFetch", "WebSearch",
        }),
        aliases={"Task": "Agent", "KillShell": "TaskStop", "KillBash": "TaskStop"},
    ),
    refusals=replace(
        BASE.refusals,
        open_expansion="This command could not be checked for dangerous rm operations: the shell may read it"
        " differently than it was parsed. This requires explicit approval.",
        link_write="Refusing to write {path}: it is a symbolic link."
        " Write to the link's target path instead: {target}.",
        unclear="{what} in this command can't be checked before it runs",
        other_case=". Tool names are case-sensitive: call {other} instead.",
        reach_inside="{what} in '{path}' needs approval.",
        redirect_inside="Output redirection to '{path}' needs approval.",
        leaving_names_parts=True,
        plan_shell="Auto mode is unavailable",
        plan_reads=True,
        hook_denied="PreToolUse:{name} hook error: {reason}",
        hook_denied_silently="PreToolUse:{name} hook error: Blocked by hook",
        plain_if_respelled=True,
        read_denied=Refusals().read_denied,
        names_link_target=True,
        refuses_links=True,
        suspicious_path=r"~\d|[. ](?:/|$)|\.(?:con|prn|aux|nul|com\d|lpt\d)$|(?:^|/)\.{3,}(?:/|$)",
    ),
    issues=replace(BASE.issues, reports_all=True),
    files=replace(
        BASE.files,
        free_models=("claude-opus-5",),
        default_model_is_free=True,
        names_slash=True,
        unresolved_link=FileValues().unresolved_link,
        shell_views=True,
        binary_suffixes=FileValues().binary_suffixes,
        refuses_process_files=True,
        limits_range=False,
        device=FileValues().device,
        empty=FileValues().empty,
        extra_inputs=frozenset({"pages", "allow_large"}),
        reports_path_errors=True,
        aliases=True,
        record_limit=10_000,
        reports_unchanged=False,
        decodes_utf16=True,
        refuses_other_encodings=True,
        keeps_mark=True,
        blank_is_beyond=False,
        drops_last_return=True,
        reports_bad_bytes=True,
        document_inline=True,
        reports_unseen=True,
        recovers_stale=True,
        folder_first=True,
    ),
    search=replace(
        BASE.search,
        checks_early=False,
        reports_rejection=True,
        strips_returns=True,
        reports_unreadable=True,
        checks_range=True,
        reports_totals=True,
        relative_context=True,
    ),
    notebook=replace(BASE.notebook, not_json=NotebookValues().not_json, checks_cells=True, counts_json=False),
    todo=replace(BASE.todo, records_description=True, repairs_input=True),
    shell=replace(
        BASE.shell,
        moved_text=(
            "Command did not complete within its {seconds}s timeout and was moved to the background"
            " (ID: {id}). Output is being written to: {path}" + READ_OUTPUT_HINT
        ),
        moved_keeps_output=True,
        error_slack=1_000,
        environment={**BASE.shell.environment, "AI_AGENT": "claude-code_2-1-325_agent"},
    ),
    tasks=replace(BASE.tasks, forgets_ended=True, old_input=False, has_exit_line=True),
    plan=replace(BASE.plan, source="file", records_edited=False),
    fetch=replace(BASE.fetch, undotted_host=FetchValues().undotted_host, has_offset=True),
    hooks=replace(
        BASE.hooks,
        points=BASE.hooks.points | {"DirectoryAdded"},
        omitted_fields=frozenset(),
        effort="medium",
        asks_permission_headless=True,
        blocked_text="[{command}]: {words}",
        summarizes_stop=True,
        records_prompt_outcome=True,
        invalid_input=(
            "PreToolUse hook for {tool} returned updatedInput that failed schema validation: {issues}\n"
            "The tool input from the model was valid; the hook's rewrite of it was not."
        ),
    ),
    shape=replace(
        BASE.shape,
        version="2.1.325",
        turn_position=True,
        rendered=True,
        blocks_numbered=True,
        decisions=True,
        turn_companions=True,
    ),
    mcp=replace(
        BASE.mcp,
        error="{message}",
        keeps_other_blocks=True,
        records_text_metadata=True,
        names_images=True,
        token_limit=25_000,
        checks_images=True,
        meta=frozenset({"structuredContent", "resourceLinks"}),
        marks_writers=True,
        description_limit=4_096,
        approval_requires_input=False,
        approval_invalid="The permission prompt tool returned an invalid permission result.",
    ),
    agents=replace(BASE.agents, has_effort=True, in_background=True, framed=True, records_request=True),
)  # fmt: skip
