"""Settings files: what a person wants of every session.

Start at `scopes.py` (which files there are), then `load.py` (one file), `trust.py` (what a project
may ask for), `merge.py` (what they say together) and `write.py` (what is added to one).
"""

from toolspan.settings.handlers import BadSetting
from toolspan.settings.load import Permissions, Settings, load
from toolspan.settings.merge import Merged, ScopedGroup, merge
from toolspan.settings.scopes import SCOPES, Layer, Places, Scope, gather
from toolspan.settings.trust import Claim, TrustStore, change_own, claim_of, default_store
from toolspan.settings.write import grant

__all__ = [
    "SCOPES",
    "BadSetting",
    "Claim",
    "Layer",
    "Merged",
    "Permissions",
    "Places",
    "Scope",
    "ScopedGroup",
    "Settings",
    "TrustStore",
    "change_own",
    "claim_of",
    "default_store",
    "gather",
    "grant",
    "load",
    "merge",
]
