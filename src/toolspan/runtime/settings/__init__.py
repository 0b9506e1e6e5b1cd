"""Settings files: what a person wants of every session.

Start at `scopes.py` (which files there are), then `load.py` (one file), `trust.py` (what a project
may ask for), `merge.py` (what they say together) and `write.py` (what is added to one).
"""

from __future__ import annotations

from toolspan.runtime.settings.hooks_block import SettingsError
from toolspan.runtime.settings.load import PermissionSettings, Settings, load_settings
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
from toolspan.runtime.settings.write import add_permissions

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
