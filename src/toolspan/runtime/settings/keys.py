"""The keys of settings files, and the part of each that applies while a project is not trusted.

`SETTINGS_KEYS` is an allow list: `split_untrusted` keeps only what the table lets an untrusted project do. All other
values of known keys need trust, and unknown keys are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Effect = Literal["restricts", "widens", "neutral"]
"""Restricting keys can only prevent calls. Widening keys can run a program, allow a call, reveal data or turn off a
safeguard. Neutral keys have no effect in toolspan."""
_ANY = object()


@dataclass(frozen=True, slots=True)
class SettingsKey:
    """A key of a settings file."""

    effect: Effect
    meaning: str
    applies: object = None
    """The only value that applies in an untrusted project; `_ANY` for all values, None for no value."""
    empty_counts: bool = False
    """True if an empty list has an effect."""

    @property
    def untrusted_effect(self) -> str:
        """The effect of the key in an untrusted project, for the documentation."""
        if self.effect == "widens" and self.applies is True:
            return "`true` runs commands inside, but still asks about them"
        match self.applies:
            case bool():
                return f"only `{str(self.applies).lower()}` applies"
            case None:
                return "ignored" if self.effect != "neutral" else "no effect"
            case _:
                return "applies"

    def applies_untrusted(self, value: object) -> bool:
        """Return whether an untrusted project may set this value."""
        return self.applies is _ANY or (self.applies is not None and value is self.applies)

    def needs_trust(self, value: object) -> bool:
        """Return whether the value has an effect only, or a further effect, in a trusted project."""
        if value is None or (value in ("", [], {}) and not self.empty_counts):
            return False
        return self.effect == "widens" or (self.effect == "restricts" and not self.applies_untrusted(value))


def _restricts(meaning: str, *, applies: object = _ANY) -> SettingsKey:
    return SettingsKey("restricts", meaning, applies)


def _widens(meaning: str, *, empty_counts: bool = False) -> SettingsKey:
    return SettingsKey("widens", meaning, empty_counts=empty_counts)


_RUNS_PROGRAM = _widens("runs a program in the client; not used")
_MANAGED = SettingsKey("neutral", "counts only in managed settings")
_UNUSED = SettingsKey("neutral", "not used")

SETTINGS_KEYS: Mapping[str, SettingsKey] = {
    "permissions.allow": _widens("allows calls"),
    "permissions.ask": _restricts("asks about calls"),
    "permissions.deny": _restricts("denies calls"),
    "permissions.defaultMode": _widens("changes the mode"),
    "permissions.additionalDirectories": _widens("adds folders"),
    "permissions.disableBypassPermissionsMode": _restricts("disables a mode"),
    "permissions.disableAutoMode": _restricts("disables a mode"),
    "hooks": _widens("run programs, allow and change calls"),
    "env": _widens("sets variables of commands, hooks and servers, such as proxies"),
    "disableAllHooks": _widens("turns off your hooks"),
    "allowedHttpHookUrls": _widens("changes the addresses of your hooks", empty_counts=True),
    "httpHookAllowedEnvVars": _widens("changes the variables of your hooks", empty_counts=True),
    "enableAllProjectMcpServers": _widens("starts servers"),
    "enabledMcpjsonServers": _widens("starts servers"),
    "disabledMcpjsonServers": _restricts("does not start servers of the project"),
    "allowManagedHooksOnly": _MANAGED,
    "allowManagedPermissionRulesOnly": _MANAGED,
    "sandbox.enabled": SettingsKey("widens", "runs commands inside, without questions", applies=True),
    "sandbox.autoAllowBashIfSandboxed": _restricts("frees commands from questions", applies=False),
    "sandbox.excludedCommands": _widens("runs commands outside"),
    # Without it, a call that asks to leave the sandbox runs inside, without a question.
    "sandbox.allowUnsandboxedCommands": _widens("lets calls leave the sandbox, or keeps them inside unasked"),
    "sandbox.failIfUnavailable": _restricts("runs nothing without a sandbox", applies=True),
    "sandbox.enabledPlatforms": _MANAGED,
    "sandbox.bwrapPath": _MANAGED,
    "sandbox.enableWeakerNestedSandbox": _widens("weakens the sandbox"),
    "sandbox.ignoreViolations": _widens("hides denials"),
    "sandbox.filesystem.allowWrite": _widens("makes files writable"),
    "sandbox.filesystem.denyWrite": _restricts("makes files read-only"),
    "sandbox.filesystem.allowRead": _widens("makes files readable"),
    "sandbox.filesystem.denyRead": _restricts("hides files"),
    "sandbox.filesystem.allowManagedReadPathsOnly": _MANAGED,
    "sandbox.filesystem.disabled": _widens("shows and opens all files"),
    "sandbox.network.allowedDomains": _widens("opens the network"),
    "sandbox.network.deniedDomains": _restricts("closes the network"),
    "sandbox.network.allowManagedDomainsOnly": _MANAGED,
    "sandbox.network.strictAllowlist": _restricts("denies other domains without a question", applies=True),
    "sandbox.network.allowUnixSockets": _widens("opens sockets"),
    "sandbox.network.allowAllUnixSockets": _widens("opens sockets"),
    "sandbox.network.allowLocalBinding": _widens("opens ports"),
    "sandbox.network.httpProxyPort": _widens("sends traffic through another proxy"),
    "sandbox.credentials.files": _restricts("hides files"),
    "sandbox.credentials.envVars": _restricts("hides variables"),
    **dict.fromkeys(
        ("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "otelHeadersHelper", "statusLine", "fileSuggestion"),
        _RUNS_PROGRAM,
    ),
    **dict.fromkeys(
        ("enabledPlugins", "extraKnownMarketplaces", "strictKnownMarketplaces"),
        _widens("loads plugins in the client; not used"),
    ),
    "skipDangerousModePermissionPrompt": _widens("hides a warning of the client; not used"),
    "skipWebFetchPreflight": _widens("turns off a check of the client; not used"),
    "autoMode": _widens("allows calls in the client; not used"),
    **dict.fromkeys(
        (
            "$schema", "agent", "alwaysThinkingEnabled", "attribution", "autoMemoryEnabled", "autoUpdatesChannel",
            "availableModels", "claudeMdExcludes", "cleanupPeriodDays", "companyAnnouncements", "defaultShell",
            "fastMode", "feedbackSurveyRate", "forceLoginOrgUUID", "includeCoAuthoredBy", "language",
            "minimumVersion", "model", "modelOverrides", "outputStyle", "plansDirectory", "prefersReducedMotion",
            "respectGitignore", "showTurnDuration", "spinnerTipsEnabled", "spinnerVerbs",
            "terminalProgressBarEnabled", "verbose", "worktree",
        ),
        _UNUSED,
    ),
}  # fmt: skip
_KEYS_BY_PATH: Mapping[tuple[str, ...], SettingsKey] = {
    tuple(name.split(".")): key for name, key in SETTINGS_KEYS.items()
}
_BLOCKS = frozenset(path[:length] for path in _KEYS_BY_PATH for length in range(1, len(path)))


@dataclass(frozen=True, slots=True)
class UntrustedSettings:
    """A settings file of a project, divided by trust."""

    restrictions: Mapping[str, object]
    """The settings that apply even if the project is not trusted, in the file's structure."""
    needs_trust: Mapping[str, object]
    """The values that need trust, by key."""


def split_untrusted(raw: Mapping[str, object]) -> UntrustedSettings:
    """Divide the decoded content of a settings file. It must have been checked before."""
    restrictions: dict[str, object] = {}
    needs_trust: dict[str, object] = {}
    for path, key, value in _walk_keys(raw, ()):
        if key.applies_untrusted(value):
            block: dict[str, object] = restrictions
            for name in path[:-1]:
                block = block.setdefault(name, {})  # type: ignore[assignment]  # only blocks are put there
            block[path[-1]] = value
        if key.needs_trust(value):
            needs_trust[".".join(path)] = value
    return UntrustedSettings(restrictions, needs_trust)


def _walk_keys(
    block: Mapping[str, object], parent: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], SettingsKey, object]]:
    for name, value in block.items():
        path = (*parent, name)
        if path in _KEYS_BY_PATH:
            yield path, _KEYS_BY_PATH[path], value
        elif path in _BLOCKS and isinstance(value, Mapping):
            yield from _walk_keys(value, path)
