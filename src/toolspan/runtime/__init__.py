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
    from toolspan.runtime.sandbox.settings import Sandbox, SandboxUnavailable
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
    "Sandbox",
    "SandboxUnavailable",
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

_NAMES_BY_MODULE = {
    "context": "ToolContext",
    "hooks.callbacks": "Hooks",
    "hooks.events": "HookEffects HookRunner NoHooks PreToolDecision SessionHookEvent ToolHookEvent",
    "hooks.load": "load_hooks",
    "hooks.merge": "combine_hooks",
    "permissions.decide": "Approver PermissionRequest Policy",
    "permissions.modes": "Permissions PolicyStack",
    "permissions.rules": "Rules",
    "pipeline": "run_call",
    "process.kill": "TerminationError",
    "process.spawn": "Command StartError",
    "process.supervisor": "ProcessSupervisor",
    "profiles": "VERSIONS profile",
    "profiles.base": "Profile",
    "queue": "Queue QueueItem",
    "runner": "Runner",
    "sandbox.settings": "Sandbox SandboxUnavailable",
    "settings.load": "SettingsError add_permissions load_settings",
    "settings.scopes": "SettingsPaths load_layers merge_settings",
    "settings.trust": "TrustStore build_trust_request",
    "sinks": "Sink",
    "tool": "Output Refusal Tool ToolFailure ToolHints ToolSubject Toolset",
}
__getattr__ = lazy_exports(
    __name__, {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}
)
