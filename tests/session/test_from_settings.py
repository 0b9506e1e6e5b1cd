"""Sessions made from settings files in Python, as `toolspan run` makes them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolspan import Allow, Ask, Deny, NotFound, Rules, Session, ToolspanError, tool
from toolspan.integrations import ApproverSetup, SettingsOptions
from toolspan.runtime.permissions.decide import Approver, PermissionRequest
from toolspan.runtime.settings import SettingsPaths, TrustStore, build_trust_request, default_trust_path, load_layers
from toolspan.session import AgentLimits, SingleCallRunner
from toolspan.testing import ScriptedModel, say, use

pytestmark = pytest.mark.anyio
PROMPT_SERVER = Path(__file__).parents[1] / "integrations" / "mcp_client" / "prompt_server.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project below a home folder of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def write(path: Path, content: str | Mapping[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def write_user_settings(project: Path, settings: Mapping[str, object]) -> None:
    write(project.parent / "home" / ".claude" / "settings.json", settings)


def trust(project: Path) -> None:
    paths = SettingsPaths.for_project(project)
    TrustStore(default_trust_path()).accept(build_trust_request(paths, load_layers(paths)))


def prompt_server(manner: str) -> dict[str, object]:
    return {"mcpServers": {"prompt": {"command": sys.executable, "args": [str(PROMPT_SERVER), manner]}}}


async def run(session: Session, command: str) -> tuple[str, str]:
    finished = (await SingleCallRunner(session).run_call("Bash", {"command": command})).finished
    return finished.span.state, str(finished.content)


async def test_rules_hooks_and_variables_of_the_user_apply(project: Path) -> None:
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": "grep -q forbidden && exit 2 || true"}]}
    write_user_settings(
        project,
        {
            "permissions": {"allow": ["Bash(echo:*)", "Bash(printenv:*)"], "deny": ["Bash(ls:*)"]},
            "hooks": {"PreToolUse": [hook]},
            "env": {"STAGE": "test"},
        },
    )

    async with Session.from_settings(project, transcript=None) as session:
        allowed = await run(session, "printenv STAGE")
        denied = await run(session, "ls")
        blocked = await run(session, "echo forbidden")

    assert allowed == ("succeeded", "test")
    assert denied[0] == "denied"
    assert blocked[0] == "blocked_by_hook"


async def test_what_a_folder_brings_is_used_once_it_is_trusted(project: Path) -> None:
    write(project / ".claude" / "settings.json", {"permissions": {"allow": ["Bash(touch:*)"]}})
    write(project / ".claude" / "agents" / "ours.md", "---\nname: ours\ndescription: Helps.\n---\nI help.\n")
    write(project / "CLAUDE.md", "Always answer in verse.")
    write(project / ".mcp.json", prompt_server("allow"))

    async def look() -> tuple[str, bool, bool, bool, list[str]]:
        warnings: list[str] = []
        model = ScriptedModel([say("Done.")])
        options: SettingsOptions = {"model": model, "transcript": None, "warn": warnings.append}
        async with Session.from_settings(project, **options) as session:
            agent = session.make_agent()
            await agent.prompt("Hello.")
            state = (await run(session, "touch made"))[0]
            names = [str(schema["name"]) for schema in session.schemas()]
        request: Any = model.requests[0]
        agents = next(str(tool["description"]) for tool in request["tools"] if tool["name"] == "Agent")
        return state, "in verse" in request["system"], "ours" in agents, "mcp__prompt__ask" in names, warnings

    untrusted = await look()
    trust(project)
    trusted = await look()

    assert untrusted[:4] == ("denied", False, False, False)
    assert "untrusted folder" in untrusted[4][0]
    assert trusted == ("succeeded", True, True, True, [])


async def test_servers_start_with_the_session_and_end_with_it_in_any_task(project: Path) -> None:
    config = write(project.parent / "servers.json", prompt_server("allow"))

    session = await Session.from_settings(
        project, mcp_config=config, transcript=None, rules=Rules(allow=["mcp__prompt__ask"])
    ).open()
    assert session.settings is not None
    states = [dict(session.settings.server_states)]
    answer = await SingleCallRunner(session).run_call("mcp__prompt__ask", {"input": {}})
    await asyncio.create_task(session.close())
    states.append(dict(session.settings.server_states))

    assert states[0] == {"prompt": "connected"}
    assert answer.finished.span.state == "succeeded"
    assert states[1] != states[0]


async def test_server_that_does_not_start_is_a_warning(project: Path) -> None:
    config = write(project.parent / "servers.json", {"mcpServers": {"gone": {"command": "/nonexistent"}}})
    warnings: list[str] = []

    async with Session.from_settings(project, mcp_config=config, transcript=None, warn=warnings.append) as session:
        assert (await run(session, "pwd"))[0] == "succeeded"

    assert len(warnings) == 1
    assert warnings[0].startswith("MCP server 'gone': ")


async def test_mcp_tool_answers_permission_requests(project: Path) -> None:
    config = write(project.parent / "servers.json", prompt_server("change"))
    options: SettingsOptions = {"mcp_config": config, "permission_tool": "mcp__prompt__ask", "transcript": None}

    async with Session.from_settings(project, **options) as session:
        assert await run(session, "touch made") == ("succeeded", "changed")


async def test_approver_answers_and_always_lasts_for_the_session(project: Path) -> None:
    asked: list[str] = []

    def make_approver(setup: ApproverSetup) -> Approver:
        async def approve(request: PermissionRequest, ask: Ask) -> Allow | Deny:
            if await setup.permissions.is_allowed(request, ask):
                return Allow(None, "user_session")
            asked.append(str(request.input["command"]))
            offer = await setup.permissions.find_offer(request, ask)
            assert offer is not None
            setup.permissions.add_grant(offer)
            return Allow(None, "user_session")

        return approve

    async with Session.from_settings(project, make_approver=make_approver, transcript=None) as session:
        first = await run(session, "touch a")
        again = await run(session, "touch a")

    assert (first[0], again[0], asked) == ("succeeded", "succeeded", ["touch a"])


async def test_own_tools_and_limits_work_beside_the_settings(project: Path) -> None:
    @tool
    def price(item: str) -> str:
        """Return the price of an item."""
        return f"{item} costs 3"

    model = ScriptedModel([use("price", item="tea"), use("price", item="milk")])
    options: SettingsOptions = {
        "model": model,
        "more_tools": [price],
        "rules": Rules(allow=["price"]),
        "transcript": None,
    }
    async with Session.from_settings(project, **options) as session:
        ended = await session.make_agent(limits=AgentLimits(turns=1), system="You sell.").prompt("How much is tea?")

    assert ended.reason == "max_turns"
    assert model.requests[0]["system"] == "You sell."
    assert session.spans[0].result is not None
    assert session.spans[0].result.text == "tea costs 3"


async def test_newest_session_is_continued_in_a_file_and_in_a_store(project: Path) -> None:
    for store in (None, f"sqlite://{project.parent}/sessions.db"):
        async with Session.from_settings(project, model=ScriptedModel([say("One.")]), store=store) as session:
            await session.make_agent().prompt("First.")
        model = ScriptedModel([say("Two.")])
        async with Session.from_settings(project, model=model, resume=True, store=store) as resumed:
            await resumed.make_agent().prompt("Second.")

        assert resumed.session_id == session.session_id
        request: Any = model.requests[0]
        assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]


async def test_session_named_by_a_prefix_is_continued(project: Path) -> None:
    async with Session.from_settings(project, model=ScriptedModel([say("One.")])) as session:
        await session.make_agent().prompt("First.")

    resumed = Session.from_settings(project, resume=session.session_id[:8])

    assert resumed.session_id == session.session_id
    with pytest.raises(NotFound):
        Session.from_settings(project, resume="ffffffff-0000")


async def test_failed_start_ends_what_was_started(project: Path) -> None:
    config = write(project.parent / "servers.json", prompt_server("allow"))
    session = Session.from_settings(project, mcp_config=config, tools=["Bash", "Baash"], transcript=None)

    with pytest.raises(ToolspanError, match="Baash"):
        await session.open()

    assert session.settings is not None
    assert dict(session.settings.server_states) != {"prompt": "connected"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sources": ["team"]}, "'team' is not a source of settings"),
        ({"resume": True, "transcript": None}, "either `resume` or"),
        ({"approver": lambda *_: Allow(), "permission_tool": "mcp__a__b"}, "use either approver or permission_tool"),
        ({"rules": Rules(deny=["Baash"]), "refuse_useless_denials": True}, "denies nothing"),
    ],
)
def test_options_that_cannot_work_are_errors(project: Path, options: SettingsOptions, message: str) -> None:
    with pytest.raises(ToolspanError, match=message):
        Session.from_settings(project, **options)


def test_unknown_options_and_missing_folders_are_errors(project: Path) -> None:
    with pytest.raises(TypeError, match=r"from_settings.*'permissions'"):
        Session.from_settings(project, permissions=None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Session.*'tool'"):
        Session(tool=None)  # type: ignore[call-arg]
    with pytest.raises(ToolspanError, match="no such folder"):
        Session.from_settings(project / "missing")


async def test_agent_needs_settings_and_a_model(project: Path) -> None:
    with pytest.raises(ToolspanError, match="from_settings"):
        Session(cwd=project, transcript=None).make_agent()
    with pytest.raises(ToolspanError, match="no model"):
        Session.from_settings(project, transcript=None).make_agent()
