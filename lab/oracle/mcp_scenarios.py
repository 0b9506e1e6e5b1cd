"""`toolspan mcp` with real clients, connected as its page documents.

Each scenario has its own home and yields what differs from the documentation.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lab.oracle.installed_client import InstalledClient, is_on_screen, submit, wait_until

Scenario = Callable[[InstalledClient], Iterator[str]]
_SUPPORTS_ELICITATION = (2, 1, 325)
_LONG_COMMAND = "echo $$ > pid; exec sleep 1000"


def expect(description: str, actual: object, expected: object) -> Iterator[str]:
    """Yield a problem if two values differ."""
    if actual != expected:
        yield f"{description}: {actual!r}, not {expected!r}"


def _set_up(client: InstalledClient, *options: str) -> Path:
    """Write files, a rule and a hook of the user, and connect our server; return the hook's log."""
    log = client.home / "hooks.jsonl"
    handler = {"type": "command", "command": f"tr -d '\\n' >> {log}; echo >> {log}"}
    settings = {
        "permissions": {"deny": ["Bash(cat secret*)"]},
        "hooks": {"PreToolUse": [{"matcher": "Bash|Edit", "hooks": [handler]}]},
    }
    client.write_file(".claude/settings.json", json.dumps(settings))
    client.write_file("proj/a.txt", "alpha\nbeta\n")
    client.write_file("proj/secret", "hush\n")
    client.scenario.settings = {"permissions": {"allow": ["mcp__toolspan", "Bash"]}}
    run = client.add_mcp_server(*options)
    assert run.code == 0, run.output
    return log


def mcp_tools(client: InstalledClient) -> Iterator[str]:
    """The model sees and calls the tools; rules deny, hooks run, and the calls are recorded."""
    hook_log = _set_up(client, "--tools", "Read,Edit,Bash")
    path = str(client.cwd / "a.txt")
    if not client.is_codex:
        servers = client.run_command("claude mcp list").output
        yield from expect("`claude mcp list`", "Connected" in servers, True)
    client.add_reply(client.tool_call("Read", file_path=path))
    client.add_reply(client.tool_call("Edit", file_path=path, old_string="alpha", new_string="ALPHA"))
    client.add_reply(client.tool_call("Bash", command="cat a.txt; false"), client.tool_call("Bash", command="pwd"))
    client.add_reply(client.tool_call("Bash", command="cat secret"))
    client.add_reply(client.tool_call("Bash", command="make love"))
    client.add_reply("That was all.")
    yield from expect("the client's exit code", client.run_session(), 0)
    yield from _check_tool_definitions(client)
    yield from _check_results(client)
    hook_inputs = [json.loads(line) for line in hook_log.read_text(encoding="utf-8").splitlines()]
    (session,) = {str(call["session"]) for call in client.recorded_calls() if call["tool"] == "Edit"}
    hooked = [item["tool_name"] for item in hook_inputs if item["session_id"] == session]
    yield from expect("calls that our hooks saw", hooked, ["Edit", *["Bash"] * 4])
    yield from _check_record(client, session)


def _check_tool_definitions(client: InstalledClient) -> Iterator[str]:
    request = client.first_tool_request()
    if client.is_codex:  # its model sees servers and searches for their tools
        yield from expect("the model sees our server", "- toolspan: Tools to read" in request, True)
        return
    tools = set(re.findall(r"mcp__toolspan__(\w+)", request))
    yield from expect("the tools that the model sees", tools, {"Read", "Edit", "Bash"})


def _check_results(client: InstalledClient) -> Iterator[str]:
    read, edit, failed, succeeded, denied, unanswered = client.tool_results()
    yield from expect("Read", read, "1\talpha\n2\tbeta\n3\t")
    yield from expect("Edit", "has been updated successfully" in edit, True)
    yield from expect("a command that fails", _before_note(failed), "Exit code 1\nALPHA\nbeta")
    yield from expect("a command", succeeded, str(client.cwd))
    yield from expect("a rule denies", "denied" in denied and "hush" not in denied, True)
    no_user = "toolspan: there is no user to ask" in unanswered
    yield from expect(f"a command that needs an approver ({unanswered!r})", no_user, True)
    yield from expect("the file", (client.cwd / "a.txt").read_text(), "ALPHA\nbeta\n")


def _before_note(result: str) -> str:
    """Return a result without the note that a client adds for a model that has not looked up the tool."""
    return result.partition("\n\nThis tool's input schema")[0]


def _check_record(client: InstalledClient, session: str) -> Iterator[str]:
    states = [(call["tool"], call["state"]) for call in client.recorded_calls(session)]
    expected = [
        ("Read", "succeeded"), ("Edit", "succeeded"), ("Bash", "failed"), ("Bash", "succeeded"),
        ("Bash", "denied"), ("Bash", "denied"),
    ]  # fmt: skip
    yield from expect("our record", states, expected)
    in_client = [call for call in client.recorded_calls() if call["tool"].startswith("mcp__toolspan__")]
    yield from expect("calls in the client's own record", len(in_client), len(expected))
    doctor = client.run_command(f"toolspan doctor {session}")
    yield from expect(f"`toolspan doctor`: {doctor.output[-200:]}", doctor.code, 0)


def mcp_readme(client: InstalledClient) -> Iterator[str]:
    """The server of the README reads files; the result of a write says why it is not allowed."""
    _set_up(client)
    client.add_reply(client.tool_call("Read", file_path=str(client.cwd / "a.txt")))
    client.add_reply(client.tool_call("Write", file_path=str(client.cwd / "b.txt"), content="b"))
    client.add_reply("That was all.")
    yield from expect("the client's exit code", client.run_session(), 0)
    read, *others = client.tool_results()
    yield from expect("Read", read, "1\talpha\n2\tbeta\n3\t")
    if not client.is_codex:  # the configuration for Codex allows edits
        no_user = "toolspan: there is no user to ask" in others[0]
        yield from expect(f"Write ({others[0]!r})", no_user, True)
        yield from expect("the file exists", (client.cwd / "b.txt").exists(), False)


def mcp_approval(client: InstalledClient) -> Iterator[str]:
    """The client's terminal shows the command and asks; the user accepts."""
    if client.is_codex or client.version < _SUPPORTS_ELICITATION:
        return
    _set_up(client, "--tools", "Bash")
    client.write_file("proj/.claude/settings.json", json.dumps(client.scenario.settings))
    client.add_reply(client.wait_for_tools())
    client.add_reply(client.tool_call("Bash", command="touch made; make || true"))
    client.add_reply("That was all.")
    with client.terminal() as screen:
        screen.start("claude --permission-mode default")
        wait_until(lambda: is_on_screen(screen, "❯"), description="the client's prompt")
        submit(screen, "Go [[s:main]]", until=lambda: bool(client.requests("main")))
        wait_until(lambda: is_on_screen(screen, "May it run?"), description="the question")
        question = "\n".join(screen.lines())
        for key in ("Right", "Enter", "Down", "Enter"):  # open the choices, once, Accept
            time.sleep(1)
            screen.press(key)
        wait_until(lambda: is_on_screen(screen, "That was all."), description="the reply")
    yield from expect(
        f"the question names the command:\n{question}", "Bash: touch made; make || true" in question, True
    )
    yield from expect("the command ran", (client.cwd / "made").exists(), True)
    (call,) = (
        call["id"]
        for call in client.recorded_calls()
        if call["tool"] == "Bash" and str(call["target"]).startswith("touch made")
    )
    why = json.loads(client.run_command(f"toolspan why {call} --json").out)
    yield from expect("the source of the decision", why["source"], "user_temporary")


def mcp_structured(client: InstalledClient) -> Iterator[str]:
    """With `--structured` the model reads structured results."""
    _set_up(client, "--structured")
    client.add_reply(client.tool_call("Read", file_path=str(client.cwd / "a.txt")))
    client.add_reply(client.tool_call("Bash", command="echo hi"), client.tool_call("Bash", command="ls; false"))
    client.add_reply("That was all.")
    yield from expect("the client's exit code", client.run_session(), 0)
    read, succeeded, failed = client.tool_results()
    yield from expect("Read", json.loads(read)["file"]["content"], "alpha\nbeta\n")
    yield from expect("Bash", json.loads(succeeded)["stdout"], "hi")
    yield from expect("a failure is a text", _before_note(failed), "Exit code 1\na.txt\nsecret")


def mcp_interrupted(client: InstalledClient) -> Iterator[str]:
    """A long command reports progress; an interrupted one is ended and recorded."""
    _set_up(client, "--allowed-tools", "Bash")
    slow = "echo one; sleep 1.7; echo two; sleep 2; ls secret"
    client.add_reply(client.tool_call("Bash", command=slow))
    client.add_reply(client.tool_call("Bash", command=_LONG_COMMAND))
    client.add_reply("That was all.")
    pid = client.cwd / "pid"

    def interrupt(process: Any) -> None:
        wait_until(lambda: pid.exists() and pid.read_text(), description="the command")
        client.interrupt(process)
        wait_until(lambda: _has_ended(pid) or process.poll() is not None, description="the command's end")
        if process.stdin is not None:
            process.stdin.close()

    client.run_session(interrupt)
    wait_until(lambda: _has_ended(pid), description="the command's end")
    yield from expect("a long command", client.tool_results()[:1], ["one\ntwo\nsecret"])
    yield from _check_progress(client)
    yield from _check_interrupted(client)


def _check_progress(client: InstalledClient) -> Iterator[str]:
    """Check the progress messages of the first call, if the client asks for them (2.0.65 does not)."""
    (request, *_) = (item for item in client.mcp_messages("in") if item.get("method") == "tools/call")
    token = request["params"].get("_meta", {}).get("progressToken")
    progress = (item["params"] for item in client.mcp_messages("out") if "progress" in item.get("method", ""))
    messages = [item["message"] for item in progress if item["progressToken"] == token]
    yield from expect("its progress", messages[:2], ["one", "two"] if token is not None else [])


def mcp_killed(client: InstalledClient) -> Iterator[str]:
    """When the client is killed, the server and its command end, and the record says so."""
    _set_up(client, "--allowed-tools", "Bash")
    client.add_reply(client.tool_call("Bash", command=_LONG_COMMAND))
    pid = client.cwd / "pid"

    def kill(process: Any) -> None:
        wait_until(lambda: pid.exists() and pid.read_text(), description="the command")
        time.sleep(0.5)  # the client writes its own lines a moment later
        os.kill(process.pid, signal.SIGKILL)  # not its group, which includes the server

    client.run_session(kill)
    wait_until(lambda: _has_ended(pid), description="the command's end")
    wait_until(lambda: not _mcp_server_pids(), description="the server's end")
    yield from _check_interrupted(client)


def _has_ended(pid_file: Path) -> bool:
    return not Path(f"/proc/{pid_file.read_text(encoding='utf-8').strip()}").exists()


def _check_interrupted(client: InstalledClient) -> Iterator[str]:
    states = [call["state"] for call in client.recorded_calls() if call["tool"] == "Bash"]
    yield from expect("our record", states[-1:], ["interrupted"])


def _mcp_server_pids() -> list[str]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"mcp" in arguments and any(argument.endswith(b"/toolspan") for argument in arguments):
            pids.append(path.parent.name)
    return pids


SCENARIOS: tuple[Scenario, ...] = (mcp_tools, mcp_readme, mcp_approval, mcp_structured, mcp_interrupted, mcp_killed)
