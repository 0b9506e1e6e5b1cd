"""Where settings are found, and who put them there.

In: a project folder, a home folder, and perhaps a file named on the command line. Out: layers, the
strongest first. A file that was named is loaded once, even if the project has it too, and counts as
the command line's. Whether the project is trusted is not asked here, see `trust.py`.
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from toolspan.settings.load import Settings, load_json, read_settings

Scope = Literal["managed", "command_line", "local", "project", "user"]
"""Where settings come from."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""The strongest first."""
OF_THE_PROJECT: frozenset[Scope] = frozenset({"project", "local"})
"""What comes with a folder, and so from whoever made it."""

_MANAGED = Path(
    "/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code"
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One settings file."""

    scope: Scope
    path: Path
    settings: Settings
    raw: Mapping[str, object]
    """All of it, as it was decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where to look."""

    project: Path
    user: Path
    """The folder of the client's own settings."""
    managed: Path = _MANAGED
    """Where an administrator puts them."""

    @classmethod
    def of(cls, project: Path, environment: Mapping[str, str] | None = None) -> "Places":
        """The usual places of a project and of whoever runs us."""
        env = os.environ if environment is None else environment
        chosen = env.get("CLAUDE_CONFIG_DIR")
        home = Path(env.get("HOME") or Path.home())
        return cls(project=project, user=Path(chosen) if chosen else home / ".claude")

    def owns(self, path: Path) -> bool:
        """Whether a file is one of the project's own settings, however it was found."""
        folder = self.project / ".claude"
        return any(
            own.exists() and path.exists() and own.samefile(path)
            for own in (folder / "settings.json", folder / "settings.local.json")
        )

    @property
    def agents(self) -> Path:
        """The project's own agents, one file each."""
        return self.project / ".claude" / "agents"

    @property
    def skills(self) -> Path:
        """The project's own skills, one folder each."""
        return self.project / ".claude" / "skills"

    @property
    def mcp(self) -> Path:
        """The project's own servers."""
        return self.project / ".mcp.json"

    @property
    def local(self) -> Path:
        """What a person wants of this project."""
        return self.project / ".claude" / "settings.local.json"

    @property
    def own(self) -> Path:
        """What a person wants of every project."""
        return self.user / "settings.json"


def gather(
    places: Places, *, named: Path | None = None, scopes: Collection[Scope] = SCOPES
) -> tuple[Layer, ...]:
    """Every settings file there is, the strongest first; `named` is always among them.

    Raises:
        SourceError: one cannot be read, or is no JSON object.
        BadSetting: one has a value of the wrong kind.
    """
    return tuple(
        _layer(scope, path)
        for scope, path in _files(places, named)
        if scope == "command_line" or scope in scopes
    )


def _files(places: Places, named: Path | None) -> Iterator[tuple[Scope, Path]]:
    for path in _managed(places.managed):
        yield "managed", path
    if named is not None:
        yield "command_line", named
    folder = places.project / ".claude"
    own: tuple[tuple[Scope, Path], ...] = (
        ("local", places.local),
        ("project", folder / "settings.json"),
        ("user", places.own),
    )
    for scope, path in own:
        if path.is_file() and not (named and named.exists() and path.samefile(named)):
            yield scope, path


def _managed(folder: Path) -> Iterator[Path]:
    """The administrator's file, and what stands beside it; later ones are stronger."""
    more = folder / "managed-settings.d"
    if more.is_dir():
        yield from sorted(more.glob("*.json"), reverse=True)
    if (folder / "managed-settings.json").is_file():
        yield folder / "managed-settings.json"


def _layer(scope: Scope, path: Path) -> Layer:
    raw = load_json(path)
    return Layer(scope, path, read_settings(raw, str(path)), raw)
