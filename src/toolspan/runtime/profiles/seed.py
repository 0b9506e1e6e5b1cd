"""The behaviour described in the founding documents of this project, as differences from 2.0.65."""

from __future__ import annotations

from dataclasses import replace

from toolspan.runtime.profiles.v2_0_65 import V2_0_65 as BASE

SEED = replace(
    BASE,
    name="seed",
    availability=replace(BASE.availability, tools=BASE.availability.tools | {"LS", "MultiEdit", "TodoRead"}),
    messages=replace(
        BASE.messages,
        unknown_tool="No such tool available",
        read_missing="File not found: {path}",
        no_match="old_string not found in file",
    ),
    refusals=replace(BASE.refusals, suspicious_path=r"(?!)"),
    files=replace(
        BASE.files,
        zero_is_first=True,
        plain_dimensions=True,
        replaces_links=False,
        writes_old_newlines=False,
        remembered_files=None,
        unifies_newlines=False,
    ),
    shell=replace(BASE.shell, exit_line=True, marks_errors=False),
    tasks=replace(BASE.tasks, loose_items=True, plan_source="input"),
    hooks=replace(BASE.hooks, flat_decision=True, unknown_drops_all=False),
    shape=replace(BASE.shape, hooks="progress"),
    mcp=replace(BASE.mcp, approval_timeout=120.0),
)
