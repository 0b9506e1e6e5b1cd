"""Run tool calls, from a request to a result.

Start at `pipeline.py` (the stages of one call), then `batch.py` (the calls in one message) and `runner.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolspan.lazy import lazy_exports

if TYPE_CHECKING:
    from toolspan.runtime.context import ToolContext
    from toolspan.runtime.hooks.callbacks import Hooks
    from toolspan.runtime.hooks.events import (
        HookEffects,
        HookRunner,
        NoHooks,
        PreToolDecision,
        SessionHookEvent,
        ToolHookEvent,
    )
    from toolspan.runtime.hooks.load import load_hooks
    from toolspan.runtime.hooks.merge import combine_hooks
    from toolspan.runtime.permissions.decide import Approver, PermissionRequest, Policy
    from toolspan.runtime.permissions.modes import Permissions, PolicyStack
    from toolspan.runtime.permissions.rules import Rules
    from toolspan.runtime.pipeline import run_call
    from toolspan.runtime.process.kill import TerminationError
    from toolspan.runtime.process.spawn import Command, StartError
    from toolspan.runtime.process.supervisor import ProcessSupervisor
    from toolspan.runtime.profiles import VERSIONS, profile
    from toolspan.runtime.profiles.base import Profile
    from toolspan.runtime.queue import Queue, QueueItem
    from toolspan.runtime.runner import Runner
    from toolspan.runtime.settings.load import SettingsError, add_permissions, load_settings
    from toolspan.runtime.settings.scopes import SettingsPaths, load_layers, merge_settings
    from toolspan.runtime.settings.trust import TrustStore, build_trust_request
    from toolspan.runtime.sinks import Sink
    from toolspan.runtime.tool import Output, Refusal, Tool, ToolFailure, ToolHints, Toolset, ToolSubject


__all__ = [
    "VERSIONS",
    "Approver",
    "Command",
    "HookEffects",
    "HookRunner",
    "Hooks",
    "NoHooks",
    "Output",
    "PermissionRequest",
    "Permissions",
    "Policy",
    "PolicyStack",
    "PreToolDecision",
    "ProcessSupervisor",
    "Profile",
    "Queue",
    "QueueItem",
    "Refusal",
    "Rules",
    "Runner",
    "SessionHookEvent",
    "SettingsError",
    "SettingsPaths",
    "Sink",
    "StartError",
    "TerminationError",
    "Tool",
    "ToolContext",
    "ToolFailure",
    "ToolHints",
    "ToolHookEvent",
    "ToolSubject",
    "Toolset",
    "TrustStore",
    "add_permissions",
    "build_trust_request",
    "combine_hooks",
    "load_hooks",
    "load_layers",
    "load_settings",
    "merge_settings",
    "profile",
    "run_call",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "VERSIONS": "profiles",
        "Approver": "permissions.decide",
        "Command": "process.spawn",
        "HookEffects": "hooks.events",
        "HookRunner": "hooks.events",
        "Hooks": "hooks.callbacks",
        "NoHooks": "hooks.events",
        "Output": "tool",
        "PermissionRequest": "permissions.decide",
        "Permissions": "permissions.modes",
        "Policy": "permissions.decide",
        "PolicyStack": "permissions.modes",
        "PreToolDecision": "hooks.events",
        "ProcessSupervisor": "process.supervisor",
        "Profile": "profiles.base",
        "Queue": "queue",
        "QueueItem": "queue",
        "Refusal": "tool",
        "Rules": "permissions.rules",
        "Runner": "runner",
        "SessionHookEvent": "hooks.events",
        "SettingsError": "settings.load",
        "SettingsPaths": "settings.scopes",
        "Sink": "sinks",
        "StartError": "process.spawn",
        "TerminationError": "process.kill",
        "Tool": "tool",
        "ToolContext": "context",
        "ToolFailure": "tool",
        "ToolHints": "tool",
        "ToolHookEvent": "hooks.events",
        "ToolSubject": "tool",
        "Toolset": "tool",
        "TrustStore": "settings.trust",
        "add_permissions": "settings.load",
        "build_trust_request": "settings.trust",
        "combine_hooks": "hooks.merge",
        "load_hooks": "hooks.load",
        "load_layers": "settings.scopes",
        "load_settings": "settings.load",
        "merge_settings": "settings.scopes",
        "profile": "profiles",
        "run_call": "pipeline",
    },
)
