"""The kinds of hook handlers: command, HTTP request, MCP tool, question to a model.

Each receives a `HookInput` and returns a `HookOutput`. `load.py` builds them from settings.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from toolspan.errors import ToolError, exception_text
from toolspan.runtime.hooks.protocol import HookInput, HookOutput
from toolspan.runtime.process import Capture, ChildProcess, Command, StartError, TerminationError


class HookHandler(Protocol):
    """A handler that runs a hook.

    `run` raises only cancellation, and leaves no process running when it is cancelled.
    """

    @property
    def name(self) -> str:
        """The command, URL or other string by which users recognise the handler."""
        ...

    @property
    def dedup_key(self) -> object:
        """A key that is equal for equivalent handlers. Only one of them is run."""
        ...

    async def run(self, hook_input: HookInput) -> HookOutput:
        """Run the handler. A failure is returned as an output with the status "failed"."""
        ...


COMMAND_OUTPUT_LIMIT = 1 << 21
"""The maximum number of bytes per stream. Longer stdout is a failure, because a partial response is
useless; longer stderr is cut in the middle.
"""
COMMAND_GRACE = 0.5
"""The seconds between SIGTERM and SIGKILL after a timeout."""
_DEFAULT_SHELL = "/bin/sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHandler:
    """A command that receives JSON on stdin and prints its response to stdout.

    Processes that it leaves behind run until the session ends.
    """

    command: str
    args: tuple[str, ...] | None = None
    """The arguments. If set, even to an empty tuple, the program runs without a shell."""
    shell: str | None = None
    detached: bool = False
    """True to not wait for the command, which then cannot make decisions."""
    exports_session_id: bool = False
    """True to put the session id and the model's effort into the environment."""
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """The command line."""
        return self.command if self.args is None else " ".join((self.command, *self.args))

    @property
    def dedup_key(self) -> object:
        """The command and its arguments."""
        return (self.command, self.args, self.shell)

    async def run(self, hook_input: HookInput) -> HookOutput:
        """Run the command."""
        hook_environment = hook_input.hook_environment
        path_variables = {"CLAUDE_PROJECT_DIR": str(hook_environment.project)}
        environment = {
            key: value
            for key, value in {**hook_environment.env_vars, **self.environment}.items()
            if not key.startswith("OTEL_")
        }
        command = Command(
            argv=self._build_argv(path_variables),
            cwd=_existing_folder(Path(str(hook_input.fields["cwd"])), hook_environment.project),
            env={**environment, **self._session_variables(hook_input), **hook_input.extra_env, **path_variables},
            tag=f"hook-{hook_input.point}",
            stdin=hook_input.data,
            memory_limit=COMMAND_OUTPUT_LIMIT,
        )
        try:
            if self.detached:
                return HookOutput(
                    exit_code=0, detached=_DetachedCommand(await hook_environment.supervisor.start(command))
                )
            async with hook_environment.supervisor.running_child(command, COMMAND_GRACE) as child:
                exit_status = await child.wait()
                return _command_output(child.stdout, child.stderr, exit_status.status)
        except StartError as error:
            return HookOutput(status="failed", problem=str(error))

    def _session_variables(self, hook_input: HookInput) -> dict[str, str]:
        if not self.exports_session_id:
            return {}
        variables = {"CLAUDE_CODE_SESSION_ID": hook_input.hook_environment.session_id or ""}
        effort = hook_input.fields.get("effort")
        if isinstance(effort, Mapping):
            variables["CLAUDE_EFFORT"] = str(effort.get("level"))
        return variables

    def _build_argv(self, path_variables: Mapping[str, str]) -> list[str]:
        if self.args is None:
            return [_find_shell(self.shell), "-c", self.command]  # the shell expands variables
        return [_expand_path_variables(argument, path_variables) for argument in (self.command, *self.args)]


@dataclass(frozen=True, slots=True)
class _DetachedCommand:
    """A command that runs asynchronously."""

    child: ChildProcess

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the command is running."""
        return self.child.exit_code

    async def wait_for_output(self) -> HookOutput:
        """Wait until the command ends and return its output."""
        try:
            exit_status = await self.child.wait()
        except TerminationError as error:
            return HookOutput(status="failed", problem=str(error))
        return _command_output(self.child.stdout, self.child.stderr, exit_status.status)

    async def terminate(self) -> None:
        """Terminate the command. The supervisor retries with any remaining processes."""
        with suppress(TerminationError):
            await self.child.terminate(COMMAND_GRACE)


def _find_shell(name: str | None) -> str:
    bash = "/bin/bash"
    return bash if name == "bash" and os.access(bash, os.X_OK) else _DEFAULT_SHELL


def _expand_path_variables(text: str, path_variables: Mapping[str, str]) -> str:
    """Replace references to path variables, such as `${CLAUDE_PROJECT_DIR}`."""
    for name, value in path_variables.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def _existing_folder(cwd: Path, project: Path) -> Path:
    """Return the first of the two folders that exists, or the root folder if neither does."""
    return next((folder for folder in (cwd, project) if folder.is_dir()), Path("/"))


def _command_output(stdout: Capture, stderr: Capture, code: int) -> HookOutput:
    errors = _decode_capture(stderr)
    if stdout.dropped:
        problem = f"it printed {stdout.total} bytes, more than the {COMMAND_OUTPUT_LIMIT} that are heard"
        return HookOutput(status="failed", exit_code=code, stderr=errors, problem=problem)
    return HookOutput(stdout=_decode_capture(stdout), stderr=errors, exit_code=code)


def _decode_capture(capture: Capture) -> str:
    text = capture.head.decode("utf-8", "replace")
    if capture.dropped:
        text += f"\n... [{capture.dropped} bytes dropped] ...\n"
        text += capture.tail.decode("utf-8", "replace")
    return text


HTTP_BODY_LIMIT = 1 << 20
_ENV_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_SUCCESS_STATUSES = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpHandler:
    """A handler that receives its input by HTTP POST."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    allowed_variables: frozenset[str] = frozenset()
    """Environment variables that headers may refer to."""
    allowed_urls: tuple[str, ...] | None = None
    """The permitted URLs, with `*` for any characters; None to permit all."""

    @property
    def name(self) -> str:
        """The URL."""
        return self.url

    @property
    def dedup_key(self) -> object:
        """The URL and headers."""
        return (self.url, tuple(sorted(self.headers.items())))

    async def run(self, hook_input: HookInput) -> HookOutput:
        """Post the input."""
        if self.allowed_urls is not None and not any(
            fnmatch.fnmatchcase(self.url, pattern) for pattern in self.allowed_urls
        ):
            return HookOutput(status="failed", problem=f"{self.url} is not among the allowed addresses")
        import httpx

        try:
            return await self._post_input(hook_input)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return HookOutput(status="failed", problem=f"{self.url}: {str(error) or type(error).__name__}")

    async def _post_input(self, hook_input: HookInput) -> HookOutput:
        import httpx

        headers = {"content-type": "application/json", **self._expand_headers(hook_input.hook_environment.env_vars)}
        async with (
            httpx.AsyncClient(follow_redirects=False, timeout=None) as client,
            client.stream("POST", self.url, content=hook_input.data, headers=headers) as response,
        ):
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > HTTP_BODY_LIMIT:
                    return HookOutput(status="failed", problem=f"{self.url}: more than {HTTP_BODY_LIMIT} bytes")
        text = body.decode("utf-8", "replace")
        if response.status_code not in _SUCCESS_STATUSES:
            return HookOutput(status="failed", problem=f"{self.url}: HTTP {response.status_code}")
        if text.strip() and not text.lstrip().startswith("{"):
            return HookOutput(status="failed", problem=f"{self.url}: the body is no JSON object")
        return HookOutput(stdout=text)

    def _expand_headers(self, environment: Mapping[str, str]) -> dict[str, str]:
        def expand_variable(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            return environment.get(name, "") if name in self.allowed_variables else ""

        return {key: _ENV_VARIABLE.sub(expand_variable, value) for key, value in self.headers.items()}


CallTool = Callable[[str, str, Mapping[str, object]], Awaitable[str]]
"""A function that calls an MCP tool, given a server, a tool and an input, and returns the result as text.

Raises:
    ToolError: the server is not connected, or the tool failed.
"""

_PLACEHOLDER = re.compile(r"\$\{([\w.]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpHandler:
    """A handler that calls a tool on an MCP server."""

    server: str
    tool: str
    input: Mapping[str, object] = field(default_factory=dict)
    call_tool: CallTool | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The qualified name of the tool."""
        return f"mcp__{self.server}__{self.tool}"

    @property
    def dedup_key(self) -> object:
        """The server, tool and input."""
        return (self.server, self.tool, json.dumps(self.input, sort_keys=True))

    async def run(self, hook_input: HookInput) -> HookOutput:
        """Call the tool."""
        if self.call_tool is None:
            return HookOutput(status="failed", problem=f"no MCP server {self.server!r} is connected here")
        arguments = {key: _fill_placeholders(value, hook_input.fields) for key, value in self.input.items()}
        try:
            return HookOutput(stdout=await self.call_tool(self.server, self.tool, arguments), exit_code=0)
        except ToolError as error:
            return HookOutput(status="failed", problem=error.message)


def _fill_placeholders(value: object, fields: Mapping[str, object]) -> object:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _field_text(match[1], fields), value)
    if isinstance(value, list):
        return [_fill_placeholders(item, fields) for item in value]
    if isinstance(value, dict):
        return {key: _fill_placeholders(item, fields) for key, item in value.items()}
    return value


def _field_text(path: str, fields: object) -> str:
    """Return the value at a path such as `tool_input.command` as a string, or an empty string if there is none."""
    for key in path.split("."):
        fields = fields.get(key) if isinstance(fields, Mapping) else None
    if fields is None:
        return ""
    return fields if isinstance(fields, str) else json.dumps(fields)


AskModel = Callable[[str, str | None], Awaitable[str]]
"""A function that sends a prompt to a model (None for the session's model) and returns its answer. It may raise."""

_ARGUMENTS_PLACEHOLDER = "$ARGUMENTS"
_ANSWER_FORMAT = (
    'Answer with one JSON object and nothing else: {"ok": true} if this may go on, or'
    ' {"ok": false, "reason": "why not"} if it may not.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptHandler:
    """A handler that asks a model whether to continue."""

    prompt: str
    model: str | None = None
    uses_tools: bool = False
    """True to ask an agent with tools instead of a plain model."""
    continue_on_block: bool = False
    """True if the model reads the reason for a refusal and continues; otherwise the turn ends."""
    ask_model: AskModel | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The prompt."""
        return self.prompt

    @property
    def dedup_key(self) -> object:
        """The prompt and the model."""
        return (self.prompt, self.model, self.uses_tools)

    async def run(self, hook_input: HookInput) -> HookOutput:
        """Ask the model and convert its answer to an output."""
        if self.ask_model is None:
            target = "agent" if self.uses_tools else "model"
            return HookOutput(status="failed", problem=f"there is no {target} here that could be asked")
        input_json = hook_input.data.decode()
        prompt = (
            self.prompt.replace(_ARGUMENTS_PLACEHOLDER, input_json)
            if _ARGUMENTS_PLACEHOLDER in self.prompt
            else f"{self.prompt}\n\n{input_json}"
        )
        try:
            answer = await self.ask_model(f"{prompt}\n\n{_ANSWER_FORMAT}", self.model)
        except Exception as error:  # noqa: BLE001 - any error of the model's client
            return HookOutput(status="failed", problem=f"the model was not heard: {exception_text(error)}")
        return self._parse_verdict(answer, hook_input)

    def _parse_verdict(self, answer: str, hook_input: HookInput) -> HookOutput:
        start, end = answer.find("{"), answer.rfind("}")
        try:
            verdict = json.loads(answer[start : end + 1])
            ok = verdict["ok"]
        except (ValueError, KeyError, TypeError):
            return HookOutput(status="failed", problem=f"the model gave no verdict: {answer[:200]!r}")
        if ok is True:
            return HookOutput(stdout="", exit_code=0)
        reason = str(verdict.get("reason") or "A hook's model said no")
        impossible = verdict.get("impossible") is True
        return HookOutput(
            stdout=json.dumps(self._build_refusal(reason, hook_input, impossible=impossible)), exit_code=0
        )

    def _build_refusal(self, reason: str, hook_input: HookInput, *, impossible: bool) -> dict[str, object]:
        stop_fields = {} if self.continue_on_block else {"continue": False, "stopReason": reason}
        match hook_input.point:
            case "PreToolUse":
                denied = {"permissionDecision": "deny", "permissionDecisionReason": reason}
                return {"hookSpecificOutput": {"hookEventName": hook_input.point, **denied}, **stop_fields}
            case "PermissionRequest":
                return {}
            case "Stop" | "SubagentStop":
                return {} if impossible else {"decision": "block", "reason": reason}
            case "UserPromptSubmit":
                return {"decision": "block", "reason": reason}
            case _:
                return {"decision": "block", "reason": reason, **stop_fields}
