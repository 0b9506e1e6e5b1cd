"""Claude Code 2.1.80, as differences from 2.0.65."""

from __future__ import annotations

from dataclasses import replace

from toolspan.runtime.profiles.base import FileValues, Refusals, SearchValues
from toolspan.runtime.profiles.v2_0_65 import V2_0_65 as BASE

V2_1_80 = replace(
    BASE,
    name="2.1.80",
    availability=replace(
        BASE.availability,
        tools=(BASE.availability.tools - {"KillShell", "SlashCommand", "Task"})
        | {"Agent", "AskUserQuestion", "CronCreate", "CronDelete", "CronList", "EnterWorktree", "ExitWorktree",
           "TaskStop"},
        aliases={"KillShell": "TaskStop", "Task": "Agent"},
        coerces=True,
    ),
    refusals=replace(
        BASE.refusals,
        star_rules=True,
        asks_about=frozenset(),
        free_redirects=False,
        plain_lines=False,
        reach_inside=Refusals().reach_inside,
        dont_ask=Refusals().dont_ask,
        no_output=Refusals().no_output,
    ),
    issues=replace(BASE.issues, validator="zod 4"),
    files=replace(
        BASE.files,
        expands_home=True,
        missing_elsewhere="",
        null_path=FileValues().null_path,
        keeps_blanks_in=FileValues().keeps_blanks_in,
        writes_raw_record=False,
        missing=FileValues().missing,
        read_missing=FileValues().read_missing,
        unreadable_folder=FileValues().unreadable_folder,
        checks_early=False,
        odd_range="first",
        extra_inputs=frozenset({"pages"}),
        scale_note_inline=False,
        snippet=False,
        all_replaced=FileValues().all_replaced,
        keeps_curly=True,
    ),
    search=replace(
        BASE.search,
        no_folder=SearchValues().no_folder,
        no_path=SearchValues().no_path,
        absolute_patterns=True,
        grep_inputs=frozenset({"context"}),
        cuts_content=None,
    ),
    notebook=replace(BASE.notebook, name_first=True, records_file=True),
    todo=replace(BASE.todo, records_nudge=True, stores_todos=False),
    shell=replace(
        BASE.shell,
        merges_streams=True,
        overflow="file",
        expects_output=True,
        notice_on_new_line=True,
        tenths=False,
        records_auto_move=True,
    ),
    tasks=replace(
        BASE.tasks,
        notifies=True,
        notice_tail="\nRead the output file to retrieve the result: {path}",
        forgets_stopped=True,
    ),
    plan=replace(BASE.plan, enter_question=None, source="input"),
    hooks=replace(
        BASE.hooks,
        points=BASE.hooks.points
        | {"Setup", "TeammateIdle", "TaskCompleted", "ConfigChange", "WorktreeCreate", "WorktreeRemove",
           "InstructionsLoaded", "PostCompact", "Elicitation", "ElicitationResult", "StopFailure"},
        timeout=600.0,
        omitted_fields=BASE.hooks.omitted_fields - {"last_assistant_message", "agent_type"},
        input_needs_decision=False,
        allow_is_final=False,
    ),
    shape=replace(
        BASE.shape,
        version="2.1.80",
        parent_is_own_call=True,
        envelope_last=True,
        entrypoint=True,
        no_branch="HEAD",
        prompt_ids=True,
        companions_aside=False,
        hooks="progress",
        last_prompt="words",
        agents="nested",
        agent_digits=17,
    ),
    mcp=replace(
        BASE.mcp,
        timed_out='MCP server "{server}" tool "{tool}" timed out after {seconds}s',
        restarts=True,
        saves_binary=True,
        inline_limit=50_000,
        meta=frozenset({"structuredContent"}),
    ),
    agents=replace(
        BASE.agents,
        name="Agent",
        needs_kind=False,
        isolates=True,
        token_word="total_tokens",
        notice_tail="\nFull transcript available at: {path}",
    ),
)  # fmt: skip
