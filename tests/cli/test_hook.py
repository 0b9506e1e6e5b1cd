"""`toolspan hook`: hooks in a client's settings, and what they note."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fork_server import TOOLSPAN, run_toolspan
from tests.requirement import requirement
from toolspan.integrations.claude_hooks import EVENT_MIN_VERSIONS, events_for, plan_install, plan_uninstall

pytestmark = pytest.mark.usefixtures("fork_server")

ALWAYS = events_for(None)
FILES = [
    None,
    b"",
    b"{}",
    b'{"model": "x"}\n',
    b'{"model":"x","hooks":{}}',
    b'{\n\t"a": [1,  2],\n\t"hooks": {"Stop": [{"hooks": [{"type":"command","command":"x"}]}]}\n}',
    '{\n    "name": "grün",\r\n  "hooks": {"PreToolUse": []}}\n\n'.encode(),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".claude").mkdir()
    return tmp_path


def hook(
    home: Path, *arguments: str, answer: str = "", cwd: Path | None = None, more_path: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(home), "COLUMNS": "80"}
    env["PATH"] = os.pathsep.join(["/usr/bin", "/bin", *more_path])
    for name in ("CLAUDE_CONFIG_DIR", "XDG_STATE_HOME"):
        env.pop(name, None)
    return run_toolspan("hook", *arguments, cwd=cwd or home, env=env, stdin=answer)


@pytest.mark.parametrize("before", FILES)
def test_uninstall_restores_the_file_byte_for_byte(home: Path, before: bytes | None) -> None:
    file = home / ".claude" / "settings.json"
    if before is not None:
        file.write_bytes(before)

    assert hook(home, "install", "--yes").returncode == 0
    result = json.loads(file.read_bytes())
    assert set(ALWAYS) <= set(result["hooks"])
    installed = file.read_bytes()
    second = hook(home, "install", "--yes")
    assert second.stdout == "The hooks are already installed.\n"
    assert file.read_bytes() == installed

    assert hook(home, "uninstall", "--yes").returncode == 0
    assert (file.read_bytes() if file.exists() else None) == before
    assert hook(home, "uninstall", "--yes").stdout == "The hooks are not installed.\n"


def test_uninstall_keeps_later_changes_by_other_programs(home: Path) -> None:
    file = home / ".claude" / "settings.json"
    handler = {"type": "command", "command": "mine"}
    file.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [handler]}]}}), encoding="utf-8")
    hook(home, "install", "--yes")
    changed = json.loads(file.read_bytes())
    changed["model"] = "other"
    changed["hooks"]["PreToolUse"][0]["hooks"].insert(0, handler)
    file.write_text(json.dumps(changed), encoding="utf-8")

    result = hook(home, "uninstall", "--yes")

    assert "has other changes since" in result.stdout
    assert json.loads(file.read_bytes()) == {
        "model": "other",
        "hooks": {"Stop": [{"hooks": [handler]}], "PreToolUse": [{"hooks": [handler]}]},
    }


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_HANDLER = st.fixed_dictionaries({"type": st.just("command"), "command": st.text(max_size=9)})
_GROUPS = st.lists(st.fixed_dictionaries({"hooks": st.lists(_HANDLER, min_size=1)}), max_size=3)
_SETTINGS = st.dictionaries(st.text(max_size=5).filter(lambda key: key != "hooks"), _JSON).flatmap(
    lambda rest: st.dictionaries(st.sampled_from(list(EVENT_MIN_VERSIONS)) | st.just("Other"), _GROUPS).map(
        lambda hooks: {**rest, "hooks": hooks}
    )
)


@given(_SETTINGS)
def test_uninstall_keeps_other_hooks_of_a_rewritten_file(
    tmp_path_factory: pytest.TempPathFactory, settings: dict[str, object]
) -> None:
    file = tmp_path_factory.mktemp("s") / "settings.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    command = "/x/toolspan hook record"
    change = plan_install(file, command, list(EVENT_MIN_VERSIONS))
    assert change.after is not None
    file.write_text(json.dumps(json.loads(change.after), indent=1), encoding="utf-8")
    uninstall = plan_uninstall(file)
    assert uninstall.after is not None
    remaining = json.loads(uninstall.after)
    assert {**remaining, "hooks": remaining.get("hooks", {})} == {
        **settings,
        "hooks": {k: v for k, v in _hooks(settings).items() if v or k not in EVENT_MIN_VERSIONS},
    }


def _hooks(result: dict[str, object]) -> dict[str, object]:
    hooks = result["hooks"]
    assert isinstance(hooks, dict)
    return hooks


def test_change_is_shown_and_confirmed_first(home: Path) -> None:
    file = home / ".claude" / "settings.json"
    file.write_text('{"model": "\\u001b[31mx"}\n', encoding="utf-8")
    no = hook(home, "install", answer="n\n")
    assert no.returncode == 1
    assert "PermissionRequest" in no.stdout
    assert "\x1b" not in no.stdout
    assert file.read_text(encoding="utf-8") == '{"model": "\\u001b[31mx"}\n'
    yes = hook(home, "install", answer="y\n")
    assert yes.returncode == 0
    assert "hook record" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"a": 1, "a": 2}', '{"hooks": {"Stop": {}}}', "// no"])
def test_broken_settings_are_reported_and_left_unchanged(home: Path, text: str) -> None:
    file = home / ".claude" / "settings.json"
    file.write_text(text, encoding="utf-8")
    for word in ("install", "uninstall"):
        result = hook(home, word, "--yes")
        assert result.returncode == 2
        assert result.stderr.startswith(f"toolspan: {file}: ")
        assert result.stderr.count("\n") == 1
    assert file.read_text(encoding="utf-8") == text


def test_project_hooks_go_to_local_settings_and_links_are_followed(home: Path) -> None:
    project, real = home / "project", home / "dotfiles.json"
    project.mkdir()
    real.write_text("{}\n", encoding="utf-8")
    (home / ".claude" / "settings.json").symlink_to(real)
    assert hook(home, "install", "--project", "--yes", cwd=project).returncode == 0
    assert hook(home, "install", "--yes").returncode == 0
    assert "hook record" in real.read_text(encoding="utf-8")
    assert (home / ".claude" / "settings.json").is_symlink()
    output = json.loads(hook(home, "status", "--json", cwd=project).stdout)
    assert output["user"]["events"] == output["project"]["events"] == list(ALWAYS)
    hook(home, "uninstall", "--project", "--yes", cwd=project)
    assert not (project / ".claude" / "settings.local.json").exists()


def test_installed_command_logs_one_line_without_contents(home: Path) -> None:
    hook(home, "install", "--yes")
    result = json.loads((home / ".claude" / "settings.json").read_bytes())
    command = result["hooks"]["PostToolUse"][0]["hooks"][0]["command"]
    transcript = home / ".claude" / "projects" / "p" / "s1.jsonl"
    output = {
        "hook_event_name": "PostToolUse",
        "transcript_path": str(transcript),
        "tool_use_id": "toolu_1",
        "tool_name": "Bash",
        "tool_input": {"command": "echo secret-word"},
        "tool_response": {"stdout": "secret-word"},
        "duration_ms": 12,
    }
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    for _ in range(2):
        completed = subprocess.run(
            ["sh", "-c", command], input=json.dumps(output).encode(), env=env, capture_output=True, check=False
        )
        assert (completed.returncode, completed.stdout, completed.stderr) == (0, b"", b"")
    lines = (transcript.with_suffix("") / "toolspan-hooks.jsonl").read_text(encoding="utf-8")
    assert lines.count("\n") == 2
    assert "secret-word" not in lines
    row = json.loads(lines.splitlines()[0])
    assert (row["event"], row["call"], row["duration_ms"]) == ("PostToolUse", "toolu_1", 12)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b'{"transcript_path": 7}',
        b'{"transcript_path": "/etc/passwd.jsonl"}',
        b'{"transcript_path": "HOME/.claude/projects/../../elsewhere.jsonl"}',
        b'{"transcript_path": "HOME/link/s.jsonl"}',
    ],
)
def test_any_input_exits_with_0_and_writes_only_in_the_client_folder(home: Path, text: bytes) -> None:
    (home / ".claude" / "projects").mkdir()
    (home / "outside").mkdir()
    (home / "link").symlink_to(home / "outside")
    before = sorted(home.rglob("*"))
    result = subprocess.run(
        [*TOOLSPAN, "hook", "record"],
        input=text.replace(b"HOME", str(home).encode()),
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert sorted(home.rglob("*")) == before


def test_client_works_when_toolspan_is_uninstalled(home: Path) -> None:
    hook(home, "install", "--yes")
    result = json.loads((home / ".claude" / "settings.json").read_bytes())
    command = result["hooks"]["Stop"][0]["hooks"][0]["command"]
    program = shlex.split(command)[0]
    missing = command.replace(program, "/nowhere/toolspan")
    completed = subprocess.run(["sh", "-c", missing], input=b"{}", capture_output=True, check=False)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, b"", b"")


def test_logging_a_hook_imports_almost_nothing() -> None:
    code = (
        "import sys; sys.argv = ['toolspan', 'hook', 'record']\n"
        "import atexit; atexit.register(lambda: print(*sorted(sys.modules)))\n"
        "from toolspan.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], input=b"", capture_output=True, check=True)
    loaded = set(result.stdout.decode().split())
    assert not loaded & {"click", "rich", "msgspec", "anyio", "pydantic", "asyncio"}


@requirement("hook.versions")
def test_client_gets_only_hooks_that_it_supports(home: Path) -> None:
    claude = home / "bin" / "claude"
    claude.parent.mkdir()
    claude.write_text("#!/bin/sh\necho '2.1.327 (Claude Code)'\n", encoding="utf-8")
    claude.chmod(0o755)
    file = home / ".claude" / "settings.json"

    def events(*arguments: str, path: tuple[str, ...] = ()) -> set[str]:
        assert hook(home, "install", "--yes", *arguments, more_path=path).returncode == 0
        return set(json.loads(file.read_bytes())["hooks"])

    assert "PostToolUseFailure" not in events()
    assert "PostToolUseFailure" not in events("--client", "2.0.65")
    assert events(path=(str(claude.parent),)) == set(EVENT_MIN_VERSIONS)
    assert events("--client", "2.1.80") == set(EVENT_MIN_VERSIONS) - {"PermissionDenied"}
    assert hook(home, "install", "--client", "new").returncode == 2
    hook(home, "uninstall", "--yes")
    assert not file.exists()


def test_approval_in_the_browser_is_opt_in_and_can_be_disabled(home: Path) -> None:
    file = home / ".claude" / "settings.json"

    def commands() -> list[tuple[str, int]]:
        groups = json.loads(file.read_bytes())["hooks"]["PermissionRequest"]
        handlers = [handler for group in groups for handler in group["hooks"]]
        return [(handler["command"].split()[-4], handler["timeout"]) for handler in handlers]

    assert hook(home, "install", "--yes", "--client", "2.1.327").returncode == 0
    assert commands() == [("record", 5)]
    result = hook(home, "install", "--yes", "--approve", "--client", "2.1.327")
    assert "hook approve" in result.stdout
    assert commands() == [("record", 5), ("approve", 65)]
    assert json.loads(hook(home, "status", "--json").stdout)["user"]["approve"]
    assert hook(home, "install", "--yes", "--client", "2.1.327").returncode == 0
    assert commands() == [("record", 5)]
    assert hook(home, "install", "--yes", "--approve", "--client", "2.1.327").returncode == 0
    assert hook(home, "uninstall", "--yes").returncode == 0
    assert not file.exists()
