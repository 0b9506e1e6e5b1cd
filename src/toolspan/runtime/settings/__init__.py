"""Settings files: permissions, hooks and variables for every session.

Start at `scopes.py` (find and merge the files), then `load.py` (load one file, parse frontmatter
and add permissions) and `trust.py` (project settings that need trust).
"""

from __future__ import annotations

from toolspan.runtime.settings.load import PermissionSettings, Settings, SettingsError, add_permissions, load_settings
from toolspan.runtime.settings.scopes import (
    SCOPES,
    MergedSettings,
    Scope,
    ScopedGroup,
    SettingsLayer,
    SettingsPaths,
    load_layers,
    merge_settings,
)
from toolspan.runtime.settings.trust import (
    TrustRequest,
    TrustStore,
    build_trust_request,
    change_local_settings,
    default_trust_path,
)

__all__ = [
    "SCOPES",
    "MergedSettings",
    "PermissionSettings",
    "Scope",
    "ScopedGroup",
    "Settings",
    "SettingsError",
    "SettingsLayer",
    "SettingsPaths",
    "TrustRequest",
    "TrustStore",
    "add_permissions",
    "build_trust_request",
    "change_local_settings",
    "default_trust_path",
    "load_layers",
    "load_settings",
    "merge_settings",
]
