"""Models for agents, and `make_model`, which creates a model from its name.

`base.py` defines the protocol, `anthropic.py`, `openai.py`, `gemini.py` and `bedrock.py` are API clients, `scripted.py`
is a model that follows a script, and `retry.py` contains wrappers such as retries.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from toolspan.errors import ToolspanError
from toolspan.extras import missing_extra
from toolspan.session.models.base import Model
from toolspan.session.models.retry import RetryingModel, RetryOptions
from toolspan.session.models.scripted import ScriptedModel, load_script

PROVIDERS = ("anthropic", "openai", "gemini", "bedrock", "scripted")
_PROVIDER_BY_PREFIX = {
    "claude": "anthropic", "gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "gemini-": "gemini",
}  # fmt: skip
_KEY_VARIABLES = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"),
}
"""The variables with the key, or with another way to sign in. Bedrock has many, which boto3 finds."""
_URL_VARIABLES = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
    "bedrock": "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
}
_MODEL_ALIASES = frozenset({"sonnet", "opus", "haiku", "fable"})
"""Short model names, resolved with the environment variables that clients use."""
_PLACEHOLDER_KEY = "none"
"""The API key used for local servers, which do not check keys."""


class ModelSpec(NamedTuple):
    """A provider, and the name of one of its models."""

    provider: str
    name: str


def parse_model_spec(spec: str) -> ModelSpec:
    """Parse `PROVIDER:NAME`, or a name whose prefix identifies the provider."""
    provider, colon, name = spec.partition(":")
    if colon and provider in PROVIDERS and name:
        return ModelSpec(provider, name)
    for start, provider_name in _PROVIDER_BY_PREFIX.items():
        if spec.startswith(start):
            return ModelSpec(provider_name, spec)
    raise ToolspanError(
        f"unknown model {spec!r}: use anthropic:NAME, openai:NAME (with --base-url for other servers with that"
        " API), gemini:NAME, bedrock:NAME or scripted:FILE"
    )


def make_model(
    spec: str,
    *,
    base_url: str | None = None,
    retry: RetryOptions | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Model:
    """Create a model from its name, wrapped with retries.

    Raises:
        ToolspanError: the name or the server address is invalid, the SDK is not installed, or the API key is
            missing.
    """
    provider, name = parse_model_spec(spec)
    if provider == "scripted":
        path = Path(name)
        try:
            return RetryingModel(ScriptedModel(load_script(path.read_bytes())), retry)
        except OSError as error:
            raise ToolspanError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise ToolspanError(f"{path}: {error}") from error
    address = base_url or environment.get(_URL_VARIABLES[provider])
    if address:
        _check_address(address)
    api_key = None  # the SDK finds it in the environment
    key_names = _KEY_VARIABLES.get(provider, ())
    if key_names and not any(environment.get(key_name) for key_name in key_names):
        if not address:
            raise ToolspanError(
                f"no API key for {provider}: set {key_names[0]}, or use your own server with --base-url"
            )
        api_key = _PLACEHOLDER_KEY
    try:
        return RetryingModel(_make_client(ModelSpec(provider, name), base_url, api_key), retry)
    except ImportError as error:
        raise missing_extra(error, f"the model {spec}", extra=provider) or error from error


def _make_client(spec: ModelSpec, base_url: str | None, api_key: str | None) -> Model:
    """Create the client of an API. Its SDK is imported here."""
    match spec.provider:
        case "anthropic":
            from toolspan.session.models.anthropic import AnthropicModel

            return AnthropicModel(spec.name, base_url=base_url, api_key=api_key)
        case "bedrock":
            from toolspan.session.models.bedrock import BedrockModel

            return BedrockModel(spec.name, base_url=base_url)
        case "openai":
            from toolspan.session.models.openai import OpenAIModel

            return OpenAIModel(spec.name, base_url=base_url, api_key=api_key)
        case _:
            from toolspan.session.models.gemini import GeminiModel

            return GeminiModel(spec.name, base_url=base_url, api_key=api_key)


def make_subagent_model(
    name: str, *, main: str = "", base_url: str | None = None, environment: Mapping[str, str] = os.environ
) -> Model | None:
    """Create the model that an agent definition names. Return None for a short name without an environment variable.

    `base_url` is the server of the `main` model; it is used for models of the same provider.

    Raises:
        ToolspanError: as `make_model`.
    """
    if name in _MODEL_ALIASES:
        model_name = environment.get(f"ANTHROPIC_DEFAULT_{name.upper()}_MODEL")
        if model_name is None:
            return None
        name = f"anthropic:{model_name}"
    is_same_provider = base_url is not None and parse_model_spec(name).provider == parse_model_spec(main).provider
    return make_model(name, base_url=base_url if is_same_provider else None, environment=environment)


def _check_address(url: str) -> None:
    """Reject an invalid address early rather than retrying it."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number
        is_valid = False
    if not is_valid:
        raise ToolspanError(f"{url!r} is not a server address: use http://HOST:PORT or https://HOST")
