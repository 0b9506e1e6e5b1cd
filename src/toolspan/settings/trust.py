"""What a project folder would have us run, and whether somebody has accepted it.

In: the layers of a project, its `.mcp.json` and its agents. Out: what would run, in words, and a
digest of it. A folder is trusted when the digest that was accepted for it is the one it has now:
one changed hook and it is not. Refusals (`deny`, `ask`) need no trust, they only take away.

Scripts that a command names are not part of the digest: who can change them could always.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolspan.errors import SourceError
from toolspan.settings.handlers import BadSetting
from toolspan.settings.head import hooks_in
from toolspan.settings.load import load_json
from toolspan.settings.scopes import OF_THE_PROJECT, Layer, Places, gather
from toolspan.settings.write import put_json

_HEAD = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---", re.DOTALL | re.MULTILINE)
_GRANTS = ("allow", "additionalDirectories", "defaultMode")
_OWN = ("hooks", "env", "enableAllProjectMcpServers", "enabledMcpjsonServers")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a project folder wants that needs trust."""

    project: Path
    wishes: Mapping[str, Mapping[str, object]]
    """By file: the parts that can make something run, or be allowed."""

    @property
    def servers(self) -> Mapping[str, object]:
        """The MCP servers it would start."""
        found = self.wishes.get(".mcp.json", {}).get("mcpServers")
        return found if isinstance(found, Mapping) else {}

    @property
    def digest(self) -> str:
        """The same for the same wishes, whatever their order and spacing."""
        told = json.dumps(self.wishes, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(told.encode()).hexdigest()

    def __bool__(self) -> bool:
        return bool(self.wishes)

    def lines(self) -> Iterator[str]:
        """The wishes, for a person."""
        for name, wishes in self.wishes.items():
            for key, value in wishes.items():
                yield f"{name}: {key}"
                yield from (f"    {line}" for line in _told(key, value))


def claim_of(places: Places, layers: Iterable[Layer]) -> Claim:
    """What a project's own files want.

    Raises:
        SourceError: its `.mcp.json` cannot be read.
    """
    wishes: dict[str, Mapping[str, object]] = {}
    for layer in layers:
        if layer.scope in OF_THE_PROJECT or places.owns(layer.path):
            wanted = _wishes(layer.raw)
            if wanted:
                wishes[os.path.relpath(layer.path, places.project)] = wanted
    if places.mcp.is_file():
        servers = load_json(places.mcp).get("mcpServers")
        if servers:
            wishes[places.mcp.name] = {"mcpServers": servers}
    for path, kind in _described(places):
        wishes[os.path.relpath(path, places.project)] = {kind: _fingerprint(path), **_hooks(path)}
    return Claim(places.project, wishes)


def _described(places: Places) -> Iterator[tuple[Path, str]]:
    """A project's own agents, and those of its skills that bring hooks along."""
    yield from ((path, "agent") for path in sorted(places.agents.rglob("*.md")))
    skills = sorted(places.skills.glob("*/SKILL.md"))
    yield from ((path, "skill") for path in skills if _hooks(path))


def _hooks(path: Path) -> dict[str, object]:
    """The hooks in the head of a file, for a person to see; what is not understood is shown too."""
    try:
        head = _HEAD.match(path.read_text(encoding="utf-8", errors="replace"))
        found = hooks_in(head[1]) if head is not None else None
    except OSError as error:
        return {"hooks": f"cannot be read: {error.strerror}"}
    except BadSetting as error:
        return {"hooks": str(error)}
    return {} if found is None else {"hooks": found}


def _fingerprint(path: Path) -> str:
    """What a file says, for a comparison; a file that cannot be read is never the same."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"{error.strerror} at {time.time()}"


def _wishes(raw: Mapping[str, object]) -> dict[str, object]:
    wanted = {key: raw[key] for key in _OWN if raw.get(key)}
    permissions = raw.get("permissions")
    if isinstance(permissions, Mapping):
        for key in _GRANTS:
            if permissions.get(key):
                wanted[f"permissions.{key}"] = permissions[key]
    return wanted


def _told(key: str, value: object) -> Iterator[str]:
    if key == "hooks" and isinstance(value, Mapping):
        for point, groups in value.items():
            for group in groups if isinstance(groups, list) else [groups]:
                yield from _told_group(str(point), group)
    elif isinstance(value, Mapping):
        yield from (f"{name}: {json.dumps(one)}" for name, one in value.items())
    elif isinstance(value, list):
        yield from (str(one) for one in value)
    else:
        yield str(value)


def _told_group(point: str, group: object) -> Iterator[str]:
    handlers = group.get("hooks") if isinstance(group, Mapping) else None
    if not isinstance(group, Mapping) or not isinstance(handlers, list):
        yield f"{point} {json.dumps(group)}"
        return
    matcher = group.get("matcher") or "*"
    for one in handlers:
        if not isinstance(one, Mapping):
            yield f"{point} {matcher} {json.dumps(one)}"
            continue
        what = one.get("command") or one.get("url") or one.get("prompt") or json.dumps(one)
        args = one.get("args")
        arguments = args if isinstance(args, list) else ()
        yield f"{point} {matcher} [{one.get('type')}] {' '.join((str(what), *map(str, arguments)))}"


def default_store(environment: Mapping[str, str] | None = None) -> Path:
    """Where accepted digests are kept: outside of every project."""
    env = os.environ if environment is None else environment
    state = env.get("XDG_STATE_HOME")
    home = Path(env.get("HOME") or Path.home())
    return (Path(state) if state else home / ".local" / "state") / "toolspan" / "trust.json"


class TrustStore:
    """Which folders were accepted, as they were then."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def trusts(self, claim: Claim) -> bool:
        """Whether nothing is wanted, or exactly this was accepted.

        A store that cannot be read trusts nobody.
        """
        if not claim:
            return True
        try:
            kept = self._read().get(_key(claim.project))
        except SourceError:
            return False
        return isinstance(kept, Mapping) and kept.get("digest") == claim.digest

    def accept(self, claim: Claim) -> None:
        """Trust the folder from now on, as long as it wants what it wants now.

        Raises:
            SourceError: the store cannot be read or written.
        """
        kept = {"digest": claim.digest, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self._write({**self._read(), _key(claim.project): kept})

    def forget(self, project: Path) -> bool:
        """Trust the folder no more; False when it was not trusted.

        Raises:
            SourceError: the store cannot be read or written.
        """
        known = dict(self._read())
        if known.pop(_key(project), None) is None:
            return False
        self._write(known)
        return True

    def folders(self) -> Sequence[str]:
        """Every folder that was accepted.

        Raises:
            SourceError: the store cannot be read.
        """
        return sorted(self._read())

    def _read(self) -> Mapping[str, object]:
        if not self.path.exists():
            return {}
        folders = load_json(self.path).get("folders")
        if not isinstance(folders, dict):
            raise SourceError(f"{self.path}: expected an object with the key `folders`, an object")
        return folders

    def _write(self, folders: Mapping[str, object]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror or error}") from error
        put_json(self.path, {"folders": folders})


def change_own(places: Places, store: TrustStore, change: Callable[[], object]) -> bool:
    """Change the project's local settings in a person's name; False if they are not trusted then.

    Who trusted the folder goes on trusting it, with what they just added to it and nothing else.

    Raises:
        SourceError: one of the files cannot be read or written; so does `change`.
        BadSetting: one of the files has a value of the wrong kind.
    """
    before = _claim_now(places)
    trusted = store.trusts(before)
    change()
    after = _claim_now(places)
    if trusted and _beside_grants(before) == _beside_grants(after):
        store.accept(after)
    return store.trusts(after)


def _claim_now(places: Places) -> Claim:
    return claim_of(places, gather(places, scopes=OF_THE_PROJECT))


def _beside_grants(claim: Claim) -> Mapping[str, Mapping[str, object]]:
    """What a folder wants, without what a person may add to its local settings."""
    local = str(Path(".claude") / "settings.local.json")
    added = {"permissions.allow", "permissions.additionalDirectories"}
    kept = {
        name: {k: v for k, v in wishes.items() if name != local or k not in added}
        for name, wishes in claim.wishes.items()
    }
    return {name: wishes for name, wishes in kept.items() if wishes}


def _key(project: Path) -> str:
    return str(project.resolve())
