"""The `sandbox` block of settings files, and the options and screens of the commands that use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirement import requirement
from toolspan.errors import ToolspanError
from toolspan.runtime import Rules, SettingsPaths, TrustStore, build_trust_request, load_layers, merge_settings
from toolspan.runtime.sandbox.bubblewrap import install_command
from toolspan.runtime.sandbox.probe import probe_sandbox
from toolspan.runtime.sandbox.settings import Sandbox, SandboxLayer, merge_sandbox_settings
from toolspan.runtime.settings.load import parse_settings, unknown_keys
from toolspan.testing import say, use

# What people have in their settings files, as Claude Code documents it.
_USER = {
    "enabled": True,
    "autoAllowBashIfSandboxed": False,
    "excludedCommands": ["docker *", "git"],
    "allowUnsandboxedCommands": False,
    "filesystem": {"allowWrite": ["~/.kube", "/tmp/build", "//opt/x"], "denyRead": ["~/.aws"], "allowRead": ["."]},
    "network": {"allowedDomains": ["github.com", "*.npmjs.org"], "allowUnixSockets": ["~/.ssh/agent"],
                "allowLocalBinding": True, "httpProxyPort": 8080, "unknownKey": 1},
    "credentials": {"files": [{"path": "~/.netrc", "mode": "deny"}], "envVars": [{"name": "TOKEN", "mode": "deny"}]},
    "ignoreViolations": {"*": ["/usr/bin"]},
    "enableWeakerNestedSandbox": False,
    "bwrapPath": "/ignored/because/not/managed",
}  # fmt: skip


def layer(block: object, folder: Path = Path("/p"), *, managed: bool = False, project: bool = False) -> SandboxLayer:
    return SandboxLayer(parse_settings({"sandbox": block}, "settings.json").sandbox, folder, managed, project)


def test_the_documented_keys_become_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    user = layer(_USER, Path("/home/ada/.claude"))
    project = layer({"filesystem": {"allowWrite": ["./out"], "denyWrite": ["src"]}}, project=True)
    rules = Rules(allow=["Edit(//srv/data/**)", "WebFetch(domain:docs.rs)"], deny=["Read(./.env)", "Edit(secrets/**)"])

    enabled, sandbox = merge_sandbox_settings([project, user], rules, Path("/p"))

    home = Path("/home/ada")
    assert enabled
    assert sandbox == Sandbox(
        auto_allow=False,
        excluded_commands=("docker *", "git"),
        allow_unsandboxed=False,
        allow_write=(Path("/p/out"), home / ".kube", Path("/tmp/build"), Path("/opt/x"), Path("/srv/data")),
        deny_write=(Path("/p/src"), Path("/p/secrets")),
        deny_read=(home / ".aws", home / ".netrc", Path("/p/.env")),
        allow_read=(home / ".claude",),
        hide_variables=("TOKEN",),
        allowed_domains=("github.com", "*.npmjs.org", "docs.rs"),
        allow_unix_sockets=(home / ".ssh/agent",),
        allow_local_binding=True,
        http_proxy_port=8080,
        ignore_violations={"*": ("/usr/bin",)},
    )


def test_managed_settings_decide_alone_about_domains_and_reading() -> None:
    managed = layer(
        {"network": {"allowManagedDomainsOnly": True, "allowedDomains": ["a.com"]},
         "filesystem": {"allowManagedReadPathsOnly": True}, "bwrapPath": "/opt/bwrap"},
        managed=True,
    )  # fmt: skip
    project = layer(
        {"network": {"allowedDomains": ["b.com"], "allowManagedDomainsOnly": False},
         "filesystem": {"allowRead": ["."], "disabled": True}, "failIfUnavailable": False},
        project=True,
    )  # fmt: skip

    _, sandbox = merge_sandbox_settings([managed, project], Rules(allow=["WebFetch(domain:c.com)"]), Path("/p"))

    assert (sandbox.allowed_domains, sandbox.ask_for_domains, sandbox.allow_read) == (("a.com",), False, ())
    assert (sandbox.bwrap_path, sandbox.files_disabled, sandbox.required) == ("/opt/bwrap", False, False)


def test_an_invalid_value_is_an_error_that_names_the_key() -> None:
    with pytest.raises(ToolspanError, match=r"`sandbox\.filesystem\.allowWrite"):
        parse_settings({"sandbox": {"filesystem": {"allowWrite": "x"}}}, "settings.json")


def test_an_untrusted_project_can_only_restrict(tmp_path: Path) -> None:
    block = {"enabled": False, "excludedCommands": ["sh"], "filesystem": {"allowWrite": ["/"], "denyRead": [".env"]}}
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_text(json.dumps({"sandbox": block}))
    paths = SettingsPaths(project=tmp_path, user=tmp_path / "user")
    (untrusted,) = merge_settings(load_layers(paths), trusted=False).layers

    assert untrusted.settings == parse_settings({"sandbox": {"filesystem": {"denyRead": [".env"]}}}, "x")
    request = build_trust_request(paths, load_layers(paths))
    assert not TrustStore(tmp_path / "trust.json").is_trusted(request)


def run_toolspan(
    folder: Path, *arguments: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolspan", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "HOME": str(folder.parent), "COLUMNS": "200", **environment},
        check=False,
    )


def bash_line(command: str, **extra: object) -> str:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": command, **extra}}
    return json.dumps({"type": "assistant", "message": {"content": [call]}})


@pytest.mark.usefixtures("bubblewrap")
def test_a_violation_is_recorded_and_shown_by_errors_why_and_show(folder: Path) -> None:
    transcript = folder.parent / "t.jsonl"
    stdin = bash_line("touch ../outside")
    done = run_toolspan(folder, "exec", "--sandbox", "--events", "--transcript", str(transcript), stdin=stdin)

    rows = [json.loads(line) for line in done.stdout.splitlines()]
    target = str(folder.parent / "outside")
    denied = next(row for row in rows if row["type"] == "sandbox.denied")
    assert denied["violations"] == [{"action": "write", "target": target}]
    assert (rows[0]["sandbox"], rows[-2]["error_kind"]) == ("bubblewrap", "sandbox_denied")
    recorded = [json.loads(line) for line in transcript.read_text().splitlines()]
    assert recorded[-1]["sandboxed"] is True
    for command in (["errors", str(transcript)], ["why", "t1", str(transcript)], ["show", str(transcript)]):
        assert f"The sandbox denied writing {target}" in run_toolspan(folder, *command).stdout


@pytest.mark.usefixtures("bubblewrap")
def test_the_sandbox_hides_secrets_unless_it_is_open_or_turned_off(folder: Path) -> None:
    (folder.parent / ".netrc").write_text("secret")
    settings = folder.parent / "settings.json"
    settings.write_text('{"sandbox": {"enabled": true}, "permissions": {"allow": ["Bash"]}}')
    read = bash_line("cat ~/.netrc; echo; echo $DEPLOY_TOKEN; touch ../made")
    options = ["exec", "--transcript", "none", "--settings", str(settings)]
    results = {
        option: json.loads(run_toolspan(folder, *options, *option, stdin=read, DEPLOY_TOKEN="token").stdout)["content"]
        for option in ((), ("--sandbox",), ("--sandbox=strict",), ("--sandbox=open",), ("--no-sandbox",))
    }

    assert "secret\ntoken" in results[("--sandbox=open",)]
    assert "Read-only file system" in results[("--sandbox=open",)]
    for option in ((), ("--sandbox",), ("--sandbox=strict",)):
        assert "No such file" in results[option]
        assert "token" not in results[option]
    assert results[("--no-sandbox",)] == "secret\ntoken"


def _run_agent(folder: Path, command: str, *options: str, **environment: str) -> tuple[str, str]:
    """Run one command with `toolspan run`, and return its result and standard error."""
    script = folder.parent / "script.json"
    script.write_text(json.dumps([[use("Bash", command=command)], [say("done")]]))
    output = ["-p", "go", "--output-format", "stream-json", "--transcript", "none", "--model", f"scripted:{script}"]
    done = run_toolspan(folder, "run", *output, *options, **environment)
    results = [block for line in done.stdout.splitlines() for block in _result_blocks(json.loads(line))]
    assert len(results) == 1, done.stderr + done.stdout
    return str(results[0]["content"]), done.stderr


def _result_blocks(row: dict[str, object]) -> list[dict[str, object]]:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if block.get("type") == "tool_result"]


_LOOK = "cat ~/.netrc; echo x > ../outside; echo x > inside; echo x > ~/.cache/made; env | grep -ci proxy"


@requirement("sandbox.default-without-questions")
@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(
    "options", [("--permission-mode", "bypassPermissions"), ("--permission-mode", "dontAsk", "--allowed-tools", "Bash")]
)
def test_run_uses_a_sandbox_and_says_so_if_nobody_is_asked(folder: Path, options: tuple[str, ...]) -> None:
    (folder.parent / ".netrc").write_text("secret")
    content, stderr = _run_agent(folder, _LOOK, *options)

    assert "secret" not in content
    assert "Read-only file system" in content
    assert ((folder / "inside").exists(), (folder.parent / "outside").exists()) == (True, False)
    assert not (folder.parent / ".cache/made").exists()
    assert "commands run in a sandbox: project writable, secrets hidden, network open" in stderr


@requirement("sandbox.default-without-questions")
@pytest.mark.usefixtures("bubblewrap")
def test_the_default_sandbox_frees_nothing_and_no_call_leaves_it(folder: Path) -> None:
    denied, _ = _run_agent(folder, "python3 -c 'print(1)'")
    freed, _ = _run_agent(folder, "python3 -c 'print(1)'", "--sandbox")
    script = folder.parent / "leave.json"
    leave = use("Bash", command="touch ../outside", dangerouslyDisableSandbox=True)
    script.write_text(json.dumps([[leave], [say("done")]]))
    options = ("-p", "go", "--model", f"scripted:{script}", "--permission-mode", "bypassPermissions")
    run_toolspan(folder, "run", *options, "--transcript", "none")

    assert denied != "1"
    assert freed == "1"
    assert not (folder.parent / "outside").exists()


@requirement("sandbox.default-without-questions")
@pytest.mark.usefixtures("bubblewrap")
def test_options_and_settings_decide_about_the_default_sandbox(folder: Path) -> None:
    mode = ("--permission-mode", "bypassPermissions")
    settings = folder.parent / "settings.json"

    def run(block: object, *options: str) -> str:
        (folder.parent / "outside").unlink(missing_ok=True)
        settings.write_text(json.dumps({"sandbox": block}))
        return _run_agent(folder, "touch ../outside", *mode, "--settings", str(settings), *options)[1]

    limited = run({"network": {"allowedDomains": ["pypi.org"]}})
    assert "network as in the settings" in limited
    for block, options in (({}, ("--no-sandbox",)), ({"enabled": False}, ())):
        stderr = run(block, *options)
        assert (folder.parent / "outside").exists()
        assert "run in a sandbox" not in stderr
        assert ("bypassPermissions as root" in stderr) == (os.geteuid() == 0)


@requirement("sandbox.default-without-questions")
@pytest.mark.skipif(sys.platform != "linux", reason="the system calls of Linux")
def test_a_missing_bubblewrap_is_a_warning_with_the_command_that_installs_it(folder: Path) -> None:
    script = folder.parent / "script.json"
    script.write_text(json.dumps([[say("done")]]))
    options = ("-p", "go", "--transcript", "none", "--model", f"scripted:{script}")
    done = _run_without_sandbox(folder, "run", *options)

    assert done.returncode == 0
    assert "commands run WITHOUT a sandbox: bubblewrap" in done.stderr


# Runs toolspan on a kernel that seems to have neither Landlock nor user namespaces: the first system call of Landlock,
# 444, does not exist, and clone with CLONE_NEWUSER is not permitted.
_WITHOUT_SANDBOX = """
import ctypes, os, struct, sys
clone = 220 if os.uname().machine == "aarch64" else 56
program = [
    (0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50026),
    (0x15, 0, 3, clone), (0x20, 0, 0, 16), (0x45, 0, 1, 0x10000000), (0x06, 0, 0, 0x50001),
    (0x06, 0, 0, 0x7FFF0000),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
filter = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, filter)
os.execv(sys.executable, [sys.executable, "-m", "toolspan", *sys.argv[1:]])
"""


def _run_without_sandbox(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT_SANDBOX, *options],
        input="",
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "HOME": str(folder.parent)},
        check=False,
    )


@requirement("sandbox.required")
@pytest.mark.skipif(sys.platform != "linux", reason="the system calls of Linux")
def test_a_missing_sandbox_ends_the_command_unless_the_settings_make_it_optional(folder: Path) -> None:
    settings = folder.parent / "settings.json"

    def run(block: object) -> subprocess.CompletedProcess[str]:
        settings.write_text(json.dumps({"sandbox": block}))
        return _run_without_sandbox(folder, "exec", "--events", "--transcript", "none", "--settings", str(settings))

    refused, allowed = run({"enabled": True}), run({"enabled": True, "failIfUnavailable": False})

    assert (refused.returncode, allowed.returncode) == (2, 0), refused.stderr + allowed.stderr
    assert "The sandbox cannot be used: bubblewrap" in refused.stderr
    assert "WITHOUT a sandbox" in allowed.stderr
    assert json.loads(allowed.stdout.splitlines()[0])["sandbox"].startswith("none")


@pytest.mark.skipif(sys.platform != "linux", reason="the system calls of Linux")
def test_the_doctor_reports_why_no_sandbox_works(folder: Path) -> None:
    done = _run_without_sandbox(folder, "doctor", "--sandbox", "--json")
    report = json.loads(done.stdout)
    bubblewrap, landlock = report["backends"]
    shown = _run_without_sandbox(folder, "doctor", "--sandbox")

    assert (done.returncode, shown.returncode, report["backend"]) == (1, 1, None)
    assert not bubblewrap["works"]
    assert not landlock["works"]
    assert {item["name"]: item["ok"] for item in report["checks"]}["Landlock"] is False
    assert "No sandbox works here" in shown.stdout
    assert all(item["problem"].split(":")[0] in " ".join(shown.stdout.split()) for item in report["backends"])


def test_the_report_names_the_command_that_installs_bubblewrap(folder: Path) -> None:
    report = probe_sandbox(Sandbox(bwrap_path=str(folder / "missing")))
    (check,) = [item for item in report.checks if item.name == str(folder / "missing")]

    assert (check.ok, check.detail, check.fix) == (False, "not found", install_command("bubblewrap"))


@pytest.mark.usefixtures("bubblewrap")
def test_an_mcp_server_runs_inside_if_its_configuration_requests_it(folder: Path) -> None:
    server = folder.parent / "server.py"
    server.write_text(
        "import pathlib\n"
        "for name in ('../by-server', 'by-server'):\n"
        "    try: pathlib.Path(name).touch()\n"
        "    except OSError: pass\n"
    )
    config = folder.parent / "mcp.json"
    entry = {"command": "/usr/bin/python3", "args": [str(server)], "sandbox": True}
    config.write_text(json.dumps({"mcpServers": {"s": entry}}))
    options = ["exec", "--transcript", "none", "--mcp-config", str(config)]
    without = run_toolspan(folder, *options)
    inside = run_toolspan(folder, *options, "--sandbox")

    assert "requests a sandbox" in without.stderr
    assert inside.returncode == 0
    assert (folder / "by-server").exists()
    assert not (folder.parent / "by-server").exists()


@pytest.mark.usefixtures("bubblewrap")
def test_replay_runs_commands_inside(folder: Path) -> None:
    transcript = folder.parent / "t.jsonl"
    outside = folder.parent / "outside"
    record = ["exec", "--transcript", str(transcript), "--permission-mode", "bypassPermissions"]
    run_toolspan(folder, *record, stdin=bash_line(f"touch {outside}"))
    outside.unlink()
    replayed = run_toolspan(folder, "replay", str(transcript), "--bash", "--json")

    assert json.loads(replayed.stdout.splitlines()[0])["verdict"] == "differs"
    assert not outside.exists()


def test_keys_that_have_no_effect_are_named_with_their_path() -> None:
    network = {"allowedDomain": ["pypi.org"], "deniedDomains": [], "socksProxyPort": 1080}
    sandbox = {
        "enabled": True,
        "network": network,
        "credentials": {"files": [{"path": "~/k"}]},
        "ignoreViolations": {"a": []},
    }

    warnings = unknown_keys({"sandbox": sandbox, "permissions": {"alow": []}}, "settings.json")

    assert [line.partition(";")[0] for line in warnings] == [
        "settings.json: ignoring the unknown key `permissions.alow`",
        "settings.json: ignoring the unknown key `sandbox.network.allowedDomain`",
        "settings.json: ignoring the unknown key `sandbox.network.socksProxyPort`",
    ]
