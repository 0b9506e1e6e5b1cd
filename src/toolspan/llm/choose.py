"""A model by its name: `anthropic:NAME`, `openai:NAME`, `scripted:FILE`.

In: what somebody typed. Out: a model that tries again when it fails. What is missing (a key, an
SDK) is told in one sentence. Knows the environment's variables for keys, not what is in them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from toolspan.errors import ToolspanError
from toolspan.llm.model import Model
from toolspan.llm.patient import Patience, Patient
from toolspan.llm.script import load_script
from toolspan.llm.scripted import ScriptedModel

KINDS = ("anthropic", "openai", "scripted")
_GUESSED = {"claude": "anthropic", "gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}
_KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai": ("OPENAI_API_KEY",),
}
_NO_KEY = "none"
"""What a server of one's own is told, which asks for none."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a name means."""

    kind: str
    name: str


def chosen(word: str) -> Chosen:
    """What somebody typed, taken apart.

    Raises:
        ToolspanError: it names no model.
    """
    kind, colon, name = word.partition(":")
    if colon and kind in KINDS and name:
        return Chosen(kind, name)
    for start, guessed in _GUESSED.items():
        if word.startswith(start):
            return Chosen(guessed, word)
    raise ToolspanError(
        f"{word!r} names no model: anthropic:NAME, openai:NAME (with --base-url any server that"
        " speaks the API) or scripted:FILE"
    )


def make_model(
    word: str,
    *,
    base_url: str | None = None,
    patience: Patience | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Model:
    """The model that a name means.

    Raises:
        ToolspanError: there is none, its SDK is not installed, its server's address is none, or
            there is no key for it.
    """
    wanted = chosen(word)
    if wanted.kind == "scripted":
        return Patient(_scripted(Path(wanted.name)), patience)
    _check_address(base_url or environment.get(f"{wanted.kind.upper()}_BASE_URL"))
    key = _key(wanted.kind, base_url, environment)
    try:
        made = _of_sdk(wanted, base_url, key)
    except ImportError as error:
        raise ToolspanError(
            f"models of {wanted.kind} need its SDK: pip install 'toolspan[{wanted.kind}]'"
        ) from error
    return Patient(made, patience)


def _of_sdk(wanted: Chosen, base_url: str | None, key: str | None) -> Model:
    if wanted.kind == "anthropic":
        from toolspan.llm.anthropic_api import AnthropicModel

        return AnthropicModel(wanted.name, base_url=base_url, api_key=key)
    from toolspan.llm.openai_api import OpenAIModel

    return OpenAIModel(wanted.name, base_url=base_url, api_key=key)


def _check_address(url: str | None) -> None:
    """An address that can never be reached is not tried again and again."""
    try:
        parts = urlsplit(url or "http://localhost")
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        fits = False
    if not fits:
        raise ToolspanError(f"{url!r} is no address of a server: http://HOST:PORT or https://HOST")


def _key(kind: str, base_url: str | None, environment: Mapping[str, str]) -> str | None:
    """The key to give to an SDK; None when it finds one itself."""
    names = _KEYS[kind]
    if any(environment.get(name) for name in names):
        return None
    if base_url or environment.get(f"{kind.upper()}_BASE_URL"):
        return _NO_KEY
    raise ToolspanError(f"no key for {kind}: set {names[0]}, or name a server with --base-url")


def _scripted(path: Path) -> ScriptedModel:
    try:
        return ScriptedModel(load_script(path.read_bytes()))
    except OSError as error:
        raise ToolspanError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ToolspanError(f"{path}: {error}") from error
