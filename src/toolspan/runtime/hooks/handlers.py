"""The kinds of hook handlers: command, HTTP request, MCP tool, question to a model.

Each receives a `HookInput` and returns a `HookOutput`. `load.py` builds them from settings.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from toolspan.errors import ToolError, exception_text
from toolspan.runtime.hooks.events import HookEnvironment
from toolspan.runtime.hooks.protocol import HookInput, HookOutput
from toolspan.runtime.process import Capture, ChildProcess, Command, StartError, TerminationError
from toolspan.runtime.settings.load import AgentSpec, CommandSpec, HttpSpec, McpSpec, PromptSpec, Switches


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
_BASH = "/bin/bash"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHandler:
    """A command that receives JSON on stdin and prints its response to stdout.

    Processes that it leaves behind run until the session ends.
    """

    spec: CommandSpec
    exports_session_id: bool = False  # put the session id and the model's effort into the environment
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """The command line."""
        return " ".join((self.spec.command, *(self.spec.args or ())))

    @property
    def dedup_key(self) -> object:
        """The command and its arguments."""
        return (self.spec.command, self.spec.args, self.spec.shell)

    async def run(self, hook_input: HookInput) -> HookOutput:
        """Run the command."""
        spec, hook_environment = self.spec, hook_input.hook_environment
        project = str(hook_environment.project)
        if spec.args is None:  # the shell expands variables
            use_bash = spec.shell == "bash" and os.access(_BASH, os.X_OK)
            argv = [_BASH if use_bash else _DEFAULT_SHELL, "-c", spec.command]
        else:
            argv = [text.replace("${CLAUDE_PROJECT_DIR}", project) for text in (spec.command, *spec.args)]
        inherited = {**hook_environment.env_vars, **self.environment}
        environment = {key: value for key, value in inherited.items() if not key.startswith("OTEL_")}
        if self.exports_session_id:
            environment["CLAUDE_CODE_SESSION_ID"] = hook_environment.session_id or ""
            effort = hook_input.fields.get("effort")
            if isinstance(effort, Mapping):
                environment["CLAUDE_EFFORT"] = str(effort.get("level"))
        folders = [Path(str(hook_input.fields["cwd"])), hook_environment.project]
        if hook_environment.sandbox is not None and hook_environment.sandbox.is_on:
            # A command may have changed to a folder with programs, modules or a repository that it made.
            folders.pop(0)
        command = Command(
            argv=argv,
            cwd=next((folder for folder in folders if folder.is_dir()), Path("/")),
            env={**environment, **hook_input.extra_env, "CLAUDE_PROJECT_DIR": project},
            tag=f"hook-{hook_input.point}",
            stdin=hook_input.data,
            memory_limit=COMMAND_OUTPUT_LIMIT,
        )
        try:
            async with _sandboxed_command(command, spec, hook_environment) as command:
                if spec.async_ or spec.async_rewake:  # it cannot make decisions
                    child = await hook_environment.supervisor.start(command)
                    return HookOutput(exit_code=0, detached=_DetachedCommand(child))
                async with hook_environment.supervisor.running_child(command, COMMAND_GRACE) as child:
                    exit_status = await child.wait()
                    return _command_output(child.stdout, child.stderr, exit_status.status)
        except StartError as error:
            return HookOutput(status="failed", problem=str(error))


@asynccontextmanager
async def _sandboxed_command(
    command: Command, spec: CommandSpec, hook_environment: HookEnvironment
) -> AsyncIterator[Command]:
    if not spec.sandbox:
        yield command
        return
    from toolspan.runtime.sandbox.active import wrap_requested  # few hooks need the proxy that it imports

    async with wrap_requested(command, hook_environment.sandbox, hook_environment.project) as wrapped:
        yield wrapped


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


def _command_output(stdout: Capture, stderr: Capture, code: int) -> HookOutput:
    errors = _decode_capture(stderr)
    if stdout.dropped:
        problem = f"it printed {stdout.total} bytes, more than the limit of {COMMAND_OUTPUT_LIMIT}"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpHandler:
    """A handler that receives its input by HTTP POST."""

    spec: HttpSpec
    switches: Switches = field(default_factory=Switches, compare=False)

    @property
    def name(self) -> str:
        """The URL."""
        return self.spec.url

    @property
    def dedup_key(self) -> object:
        """The URL and headers."""
        return (self.spec.url, tuple(sorted(self.spec.headers.items())))

    async def run(self, hook_input: HookInput) -> HookOutput:
        """Post the input."""
        import httpx2

        url, allowed_urls = self.spec.url, self.switches.allowed_http_hook_urls
        if allowed_urls is not None and not any(fnmatch.fnmatchcase(url, pattern) for pattern in allowed_urls):
            return HookOutput(status="failed", problem=f"{url} is not among the allowed addresses")
        headers = {"content-type": "application/json", **self._expand_headers(hook_input.hook_environment.env_vars)}
        body = b""
        try:
            async with (
                httpx2.AsyncClient(follow_redirects=False, timeout=None) as client,
                client.stream("POST", url, content=hook_input.data, headers=headers) as response,
            ):
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > HTTP_BODY_LIMIT:
                        return HookOutput(status="failed", problem=f"{url}: more than {HTTP_BODY_LIMIT} bytes")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return HookOutput(status="failed", problem=f"{url}: {str(error) or type(error).__name__}")
        text = body.decode("utf-8", "replace")
        if not response.is_success:
            return HookOutput(status="failed", problem=f"{url}: HTTP {response.status_code}")
        if text.strip() and not text.lstrip().startswith("{"):
            return HookOutput(status="failed", problem=f"{url}: the body is not a JSON object")
        return HookOutput(stdout=text)

    def _expand_headers(self, environment: Mapping[str, str]) -> dict[str, str]:
        allowed = frozenset(self.spec.allowed_env_vars)
        if self.switches.http_hook_allowed_env_vars is not None:
            allowed &= frozenset(self.switches.http_hook_allowed_env_vars)

        def expand_variable(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            return environment.get(name, "") if name in allowed else ""

        return {key: _ENV_VARIABLE.sub(expand_variable, value) for key, value in self.spec.headers.items()}


CallTool = Callable[[str, str, Mapping[str, object]], Awaitable[str]]
"""A function that calls an MCP tool, given a server, a tool and an input, and returns the result as text.

Raises:
    ToolError: the server is not connected, or the tool failed.
"""

_PLACEHOLDER = re.compile(r"\$\{([\w.]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpHandler:
    """A handler that calls a tool on an MCP server."""

    spec: McpSpec
    call_tool: CallTool | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The qualified name of the tool."""
        return f"mcp__{self.spec.server}__{self.spec.tool}"

    @property
    def dedup_key(self) -> object:
        """The server, tool and input."""
        return (self.spec.server, self.spec.tool, json.dumps(self.spec.input, sort_keys=True))

    async def run(self, hook_input: HookInput) -> HookOutput:
        """Call the tool."""
        server = self.spec.server
        if self.call_tool is None:
            return HookOutput(status="failed", problem=f"the MCP server {server!r} is not connected")
        arguments = {key: _fill_placeholders(value, hook_input.fields) for key, value in self.spec.input.items()}
        try:
            return HookOutput(stdout=await self.call_tool(server, self.spec.tool, arguments), exit_code=0)
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

    spec: PromptSpec | AgentSpec
    ask_model: AskModel | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The prompt."""
        return self.spec.prompt

    @property
    def dedup_key(self) -> object:
        """The prompt and the model."""
        return (self.spec.prompt, self.spec.model, isinstance(self.spec, AgentSpec))

    async def run(self, hook_input: HookInput) -> HookOutput:
        """Ask the model and convert its answer to an output."""
        if self.ask_model is None:
            target = "agent" if isinstance(self.spec, AgentSpec) else "model"
            return HookOutput(status="failed", problem=f"there is no {target} to ask here")
        prompt, input_json = self.spec.prompt, hook_input.data.decode()
        if _ARGUMENTS_PLACEHOLDER in prompt:
            prompt = prompt.replace(_ARGUMENTS_PLACEHOLDER, input_json)
        else:
            prompt = f"{prompt}\n\n{input_json}"
        try:
            answer = await self.ask_model(f"{prompt}\n\n{_ANSWER_FORMAT}", self.spec.model)
        except Exception as error:  # noqa: BLE001 - any error of the model's client
            return HookOutput(status="failed", problem=f"the model did not answer: {exception_text(error)}")
        start, end = answer.find("{"), answer.rfind("}")
        try:
            verdict = json.loads(answer[start : end + 1])
            ok = verdict["ok"]
        except (ValueError, KeyError, TypeError):
            return HookOutput(status="failed", problem=f"the model gave no valid answer: {answer[:200]!r}")
        if ok is True:
            return HookOutput(stdout="", exit_code=0)
        reason = str(verdict.get("reason") or "The model of a hook refused, without a reason")
        refusal = self._build_refusal(reason, hook_input, impossible=verdict.get("impossible") is True)
        return HookOutput(stdout=json.dumps(refusal), exit_code=0)

    def _build_refusal(self, reason: str, hook_input: HookInput, *, impossible: bool) -> dict[str, object]:
        # The model reads the reason and continues, or the turn ends.
        continues = isinstance(self.spec, AgentSpec) or self.spec.continue_on_block
        stop_fields = {} if continues else {"continue": False, "stopReason": reason}
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
