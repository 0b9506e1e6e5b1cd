"""The behaviour described in the founding documents of this project, as differences from 2.0.65."""

from __future__ import annotations

from dataclasses import replace

from toolspan.runtime.profiles.v2_0_65 import V2_0_65 as BASE

_EVALUATE_ERROR = "MCP error -32603: failed to evaluate permission"

SEED = replace(
    BASE,
    name="seed",
    availability=replace(BASE.availability, tools=BASE.availability.tools | {"LS", "MultiEdit", "TodoRead"}),
    refusals=replace(
        BASE.refusals,
        asks_about=frozenset(),
        plain_lines=False,
        suspicious_path="",
        unknown_tool="No such tool available",
    ),
    files=replace(
        BASE.files,
        read_missing="File not found: {path}",
        no_match="old_string not found in file",
        zero_is_first=True,
        plain_dimensions=True,
        replaces_links=False,
        writes_old_newlines=False,
        remembered_files=None,
        unifies_newlines=False,
    ),
    todo=replace(BASE.todo, loose_items=True),
    shell=replace(BASE.shell, exit_line=True, marks_errors=False),
    plan=replace(BASE.plan, source="input"),
    hooks=replace(BASE.hooks, flat_decision=True, unknown_drops_all=False),
    shape=replace(BASE.shape, hooks="progress"),
    mcp=replace(
        BASE.mcp,
        approval_timeout=120.0,
        approval_timed_out=f"{_EVALUATE_ERROR}: request timed out after {{duration}}",
        approval_unanswered=f"{_EVALUATE_ERROR}: no response received",
    ),
)
