"""Content is exported only on request, truncated and redacted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integrations.opentelemetry.exporters import Watch, call
from toolspan import Permissions
from toolspan.errors import ToolError
from toolspan.integrations.opentelemetry import redact_text
from toolspan.runtime.context import ToolContext
from toolspan.runtime.hooks import Hooks
from toolspan.runtime.hooks.events import HookEffects
from toolspan.runtime.permissions.decide import PermissionRequest
from toolspan.runtime.profiles import profile
from toolspan.runtime.runner import Runner
from toolspan.runtime.tool import Output, Tool, ToolFailure, tool
from toolspan.session import Session
from toolspan.tools import coding_tools
from toolspan.types.decision import Ask, Decision, Deny
from toolspan.types.span import Call

pytestmark = pytest.mark.anyio

CANARY = "canary7f3a"
ENDINGS = ("text", "blocks", "structured", "failure", "tool error", "exception", "unwritable")
SURROUNDINGS = ("nothing", "rule", "question", "hook before", "hook after", "broken hook", "input")


def leaky(ending: str) -> Tool:
    @tool
    async def leak(path: str, ctx: ToolContext) -> object:
        """Leak."""
        ctx.progress("step", path=path)
        match ending:
            case "text":
                return path
            case "blocks":
                return [{"type": "text", "text": path}]
            case "structured":
                return Output("ok", structured={path: path}, companions=(path,))
            case "failure":
                return ToolFailure(path, exit_code=3)
            case "tool error":
                raise ToolError(path)
            case "unwritable":
                return Output([{"type": path}])
            case _:
                raise ValueError(path)

    return leak


def asked(surrounding: str) -> Decision | None:
    match surrounding:
        case "rule":
            return Deny(CANARY)
        case "question":
            return Ask(CANARY)
        case _:
            return None


def hooked(surrounding: str) -> Hooks:
    hooks = Hooks()

    @hooks.pre_tool_use()
    def before(_: Call) -> Deny | None:
        return Deny(CANARY) if surrounding == "hook before" else None

    @hooks.post_tool_use()
    def after(*_: object) -> HookEffects:
        if surrounding == "broken hook":
            raise RuntimeError(CANARY)
        output = (CANARY,) if surrounding == "hook after" else ()
        return HookEffects(contexts=output, feedback=output, stop=CANARY if output else None)

    return hooks


async def run(watch: Watch, ending: str, surrounding: str, values: Mapping[str, object]) -> None:
    async def policy(_: PermissionRequest) -> Decision | None:
        return asked(surrounding)

    running = Runner(
        [leaky(ending)], cwd=Path("/") / CANARY, hooks=hooked(surrounding), policies=[policy], direct=[watch.sink]
    )
    input = {**values, CANARY: 1} if surrounding == "input" else values
    with watch.tracers.get_tracer("host").start_as_current_span("turn"):
        await running.run([call("leak", **input)])


@given(ending=st.sampled_from(ENDINGS), surrounding=st.sampled_from(SURROUNDINGS), around=st.text(max_size=20))
def test_no_content_is_exported_by_default(ending: str, surrounding: str, around: str) -> None:
    watch = Watch()
    anyio.run(run, watch, ending, surrounding, {"path": f"/{around}/{CANARY}{around}"})
    assert watch.spans
    assert CANARY not in watch.everything()


@pytest.mark.parametrize("surrounding", SURROUNDINGS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_content_is_exported_on_request(ending: str, surrounding: str) -> None:
    watch = Watch(content=True)
    anyio.run(run, watch, ending, surrounding, {"path": CANARY})
    assert CANARY in watch.everything()


async def test_no_commands_files_and_folders_are_exported_by_default(tmp_path: Path) -> None:
    folder = tmp_path / CANARY
    folder.mkdir()
    watch = Watch()
    tools = coding_tools(profile())
    path = folder / "notes.txt"
    blocks = [
        call("Write", "a", file_path=str(path), content=CANARY),
        call("Read", "b", file_path=str(path)),
        call("Bash", "c", command=f"echo {CANARY}; exit 3"),
    ]
    async with Session(
        permissions=Permissions.allow_all(), cwd=folder, tools=tools, transcript=folder / "t.jsonl", sinks=[watch.sink]
    ) as session:
        session.say(CANARY)
        await session.run({"id": "msg_1", "role": "assistant", "content": blocks})

    assert len([span for span in watch.spans if span.name.startswith("execute_tool")]) == 3
    assert CANARY not in watch.everything()


async def test_content_is_truncated_per_item_and_per_call() -> None:
    @tool
    async def talk(text: str, ctx: ToolContext) -> str:
        """Talk."""
        return text

    watch, hooks = Watch(content=True), Hooks()
    for _ in range(10):
        hooks.pre_tool_use()(lambda _: Deny("no " * 500))
    await Runner([talk], hooks=hooks, direct=[watch.sink]).run([call("talk", text="x" * 9999)])

    pieces = [
        str(value)
        for span in watch.spans
        for name, value in (span.attributes or {}).items()
        if name in ("gen_ai.tool.call.arguments", "toolspan.hook.text")
    ]
    assert max(map(len, pieces)) == 512
    assert 4_000 < sum(map(len, pieces)) <= 4_096


@pytest.mark.parametrize(
    "text",
    [
        "export ANTHROPIC_API_KEY=hunter2",
        "SIGNING_KEY = hunter2",
        "DB_PWD='hunter2 hunter2' psql",
        'PASSWORD="hunter2 hunter2"',
        "curl -H 'Authorization: Bearer hunter2'",
        "Authorization: Basic aHVudGVyMg hunter2".replace(" hunter2", "=hunter2"),
        "git clone https://mira:hunter2@example.org/x.git",
        "git clone https://hunter2@example.org/x.git",
        "postgres://u:hunter2@db:5432/x",
        "mysql --password hunter2 -u root",
        "tool --api-key=hunter2 --verbose",
        '{"password":"hunter2"}',
        '{"command":"echo \\"token\\": \\"hunter2\\""}',
        '{"command":"cd x\\nDB_PASSWORD=hunter2 ./run"}',
        '{"nested":{"clientSecret":"hunter2 hunter2"}}',
        "token: hunter2",
        "aws_secret_access_key=hunter2/hunter2+hunter2",
        "sk-ant-api03-hunter2hunter2hunter2",
        "ghp_hunter2hunter2hunter2hunter2",
        "AKIAHUNTER2HUNTER2H hunter".replace(" hunter", ""),
        "eyJhbGciOi.hunter2hunter2.hunter2hunter2",
        "whsec_hunter2hunter2hunter2",
        "gldt-hunter2hunter2",
        "Cookie: session=hunter2; id=hunter2",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhunter2 and no end",
    ],
)
def test_secrets_are_redacted(text: str) -> None:
    output = redact_text(text)
    assert "hunter2" not in output.lower()
    assert "[redacted]" in output


@pytest.mark.parametrize(
    "text",
    [
        "ls -la src/toolspan",
        "max_tokens=500",
        '{"file_path":"/home/mira/notes.md","limit":20}',
        "https://example.org/a@b?x=1#keys",
        "The keyboard has many keys: all of them.",
        "author: Mira",
    ],
)
def test_other_texts_are_not_redacted(text: str) -> None:
    assert redact_text(text) == text


def test_import_without_the_extra_names_the_package_to_install() -> None:
    script = "import sys; sys.modules['opentelemetry'] = None; import toolspan.integrations.opentelemetry"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "toolspan.integrations.opentelemetry needs opentelemetry, which is not installed: run " in last
    assert last.endswith("[otel]'")


def test_toolspan_does_not_import_opentelemetry() -> None:
    script = (
        "import sys, toolspan, toolspan.session, toolspan.cli; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
